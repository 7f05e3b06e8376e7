#!/usr/bin/env python3
"""What each signal does to a run (docs/starting.md): stop signals save and end it in every phase, SIGUSR2 does not end it, and nohup keeps SIGHUP away.

usage: signals.py TRIREME
"""
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from launched import TRIREME, ranks_of
from steps import has_steps

LIMIT_S = 120  # of a busy machine; nothing here waits for it
SMALL = """
model: {name: mlp, hidden: [8]}
data: {name: synthetic, synthetic_count: 4096, synthetic_width: 8}
train: {batch: 16, epochs: 100000, threads: 1, eval_every: 0}
"""
LONG_EVALUATION = """
model: {name: mlp, hidden: [1024, 1024]}
data: {name: synthetic, synthetic_count: 40000, synthetic_width: 64}
train: {batch: 64, epochs: 10, threads: 1, eval_every_steps: 1}
"""
PROGRAM = """
trap 'echo USR2; exit 0' USR2
trap 'echo USR1; exit 0' USR1
trap 'echo HUP; exit 0' HUP
echo ready
while :; do sleep 0.05; done
"""


class Signals(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.place.name)
        self.run_folder = self.folder / "run"
        self.config = self.folder / "run.yaml"
        self.processes = []
        self.addCleanup(self.place.cleanup)
        self.addCleanup(self.end_all)

    def end_all(self):
        for one in self.processes:
            one.kill()
            one.communicate()

    def start(self, *command, **options):
        one = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        self.processes.append(one)
        return one

    def train(self, config, *words, **options):
        self.config.write_text(config)
        self.run_folder = self.folder / f"run{len(self.processes)}"
        return self.start(TRIREME, "train", str(self.config), "--out", str(self.run_folder), "checkpoint.every_epochs=0", *words, **options)

    def until(self, what, process):
        end = time.monotonic() + LIMIT_S
        while not what() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        self.assertTrue(what(), process.communicate()[0] if process.poll() is not None else "not in time")

    def has_steps(self):
        return has_steps(self.run_folder)

    def checkpoints(self):
        folder = self.run_folder / "checkpoints"
        return os.listdir(folder) if folder.exists() else []

    def ends(self, process, number, words=""):
        output = process.communicate(timeout=LIMIT_S)[0]
        self.assertEqual(process.returncode, 128 + number, output)
        self.assertIn(words, output)

    def test_a_stop_signal_saves_and_ends(self):
        for words in ([], ["-n", "2"], ["-n", "2", "--elastic", "1:2"], ["-n", "1", "--servers", "1"]):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
                with self.subTest(words=words, signal=number.name):
                    process = self.train(SMALL, *words)
                    self.until(self.has_steps, process)
                    process.send_signal(number)
                    self.ends(process, number)
                    self.assertEqual(len(self.checkpoints()), 1)

    def test_a_worker_of_an_elastic_run_leaves_by_any_but_ctrl_c(self):
        for number in (signal.SIGHUP, signal.SIGUSR1):
            with self.subTest(signal=number.name):
                process = self.train(SMALL, "-n", "2", "--elastic", "1:2")
                self.until(self.has_steps, process)
                self.until(lambda: len(ranks_of(process.pid)) == 2, process)
                os.kill(ranks_of(process.pid)[1], number)
                self.until(lambda: list(ranks_of(process.pid)) == [0], process)
                count = (self.run_folder / "metrics.jsonl").stat().st_size
                self.until(lambda: (self.run_folder / "metrics.jsonl").stat().st_size > count, process)
                process.send_signal(signal.SIGTERM)
                self.ends(process, signal.SIGTERM)

    def test_nohup_keeps_hangups_away(self):
        process = self.train(SMALL, "-n", "2", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.until(self.has_steps, process)
        for pid in [process.pid, *ranks_of(process.pid).values()]:
            os.kill(pid, signal.SIGHUP)
        count = (self.run_folder / "metrics.jsonl").stat().st_size
        self.until(lambda: (self.run_folder / "metrics.jsonl").stat().st_size > count, process)
        process.send_signal(signal.SIGTERM)
        self.ends(process, signal.SIGTERM)

    def test_a_trace_is_asked_for_and_the_run_goes_on(self):
        process = self.train(SMALL, "-n", "2")
        self.until(self.has_steps, process)
        process.send_signal(signal.SIGUSR2)
        self.until(lambda: (self.run_folder / "traces").exists() and os.listdir(self.run_folder / "traces"), process)
        process.send_signal(signal.SIGTERM)
        self.ends(process, signal.SIGTERM)

    def evaluations(self):
        metrics = self.run_folder / "metrics.jsonl"
        return metrics.read_text().count('"test_loss"') if metrics.exists() else 0

    def test_an_evaluation_is_dropped_and_the_step_saved(self):
        for words in ([], ["-n", "2"]):
            for _ in range(5):  # a signal between two evaluations, which is not likely, drops none
                process = self.train(LONG_EVALUATION, *words)
                self.until(lambda: self.evaluations() > 0, process)
                process.send_signal(signal.SIGTERM)
                self.ends(process, signal.SIGTERM, "which is saved")
                step = int(self.checkpoints()[0].split("-")[1])
                if self.evaluations() < step:
                    break
            self.assertEqual(self.evaluations(), step - 1)

    def test_loading_ends_at_once(self):
        table = self.folder / "large.csv"
        with table.open("w") as file:
            for _ in range(40):
                file.write("".join(f"0.{i},0.25,0.125,0.5,0.75,{i % 2}\n" for i in range(50000)))
        for words in ([], ["-n", "2", "--elastic", "1:2"]):
            with self.subTest(words=words):
                process = self.train("model: {name: mlp, hidden: [8]}\ntrain: {batch: 16, epochs: 1000, threads: 1}\n", f"data.path={table}", *words)
                pids = lambda: ranks_of(process.pid).values() if words else [process.pid]
                self.until(lambda: any("large.csv" in pathlib.Path(f"/proc/{pid}/maps").read_text() for pid in pids()), process)
                process.send_signal(signal.SIGTERM)
                self.ends(process, signal.SIGTERM, "stopped by a signal before the first step")
                self.assertEqual(self.checkpoints(), [])

    def test_launch_passes_signals_on_to_any_program(self):
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            with self.subTest(signal=number.name):
                process = self.start(TRIREME, "launch", "-n", "2", "--", "sh", "-c", PROGRAM)
                self.assertEqual({process.stdout.readline(), process.stdout.readline()}, {"[0] ready\n", "[1] ready\n"})
                process.send_signal(number)
                output = process.communicate(timeout=LIMIT_S)[0]
                for rank in (0, 1):
                    self.assertIn(f"[{rank}] {number.name[3:]}\n", output)


if __name__ == "__main__":
    unittest.main(verbosity=1)
