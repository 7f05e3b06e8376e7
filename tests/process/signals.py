#!/usr/bin/env python3
"""What each signal does to a run (docs/clusters.md): stop signals save and end it in every phase, SIGUSR2 does not end it, and nohup keeps SIGHUP away.

usage: signals.py TRIREME
"""
import json
import math
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from launched import LIMIT_S, TRIREME, ranks_of
from steps import has_steps

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
# Layouts that take a minute to plan.
DEEP = """
model: {name: gpt2, n_layer: 96, n_head: 64, n_embd: 4096}
data: {name: synthetic, synthetic_tokens: true, synthetic_width: 64, classes: 256}
train: {batch: 4096, shards: 4096}
"""
CLUSTER = """
hosts: [{name: node, count: 128, workers: 8, gflops: 50, memory_gib: 1000, memory_gb_s: 10}]
links: {local: {gb_s: 5, latency_us: 2}, network: {gb_s: 0.1, latency_us: 50}}
"""

PROGRAM = """
trap 'echo USR2; exit 0' USR2
trap 'echo USR1; exit 0' USR1
trap 'echo HUP; exit 0' HUP
echo ready
while :; do sleep 0.05; done
"""


def catches(process, number):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1 == 1


def computed_s(process):
    return int(pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11]) / os.sysconf("SC_CLK_TCK")


def sparse_model(folder, layers=24, width=1024):
    """A model of 1.2 GB that takes no place on disk: its weights are zeros."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": 16, "n_positions": 64, "vocab_size": 256}))
    shapes = {"wte.weight": [256, width], "wpe.weight": [64, width], "ln_f.weight": [width], "ln_f.bias": [width]}
    for layer in range(layers):
        for name, shape in (("attn.c_attn", [width, 3 * width]), ("attn.c_proj", [width, width]), ("mlp.c_fc", [width, 4 * width]), ("mlp.c_proj", [4 * width, width])):
            shapes |= {f"h.{layer}.{name}.weight": shape, f"h.{layer}.{name}.bias": shape[1:]}
        for name in ("ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"):
            shapes[f"h.{layer}.{name}"] = [width]
    header, at = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * math.prod(shape)]}
        at += 4 * math.prod(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


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

    def test_a_trace_is_asked_for_and_the_run_continues(self):
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
                reads = lambda pid: "large.csv" in pathlib.Path(f"/proc/{pid}/maps").read_text()
                alone = signal.SIGINT if words else None
                pids = lambda: list(ranks_of(process.pid).values()) if words else [process.pid]
                self.until(lambda: len(pids()) == (2 if words else 1) and all(reads(pid) for pid in pids()), process)
                if alone:  # the other one goes on
                    other = ranks_of(process.pid)[1]
                    os.kill(other, alone)
                    self.until(lambda: not os.path.exists(f"/proc/{other}"), process)  # the launcher knows how it ended
                process.send_signal(signal.SIGTERM)
                self.ends(process, signal.SIGTERM, f"worker 1 was stopped by a signal before it was a member (exit code {128 + alone})" if alone else
                          "stopped by a signal before the first step")
                self.assertEqual(self.checkpoints(), [])

    def test_other_commands_end_and_leave_nothing_that_looks_whole(self):
        """Each in its long phase, which an event shows. A command that keeps nothing is ended by the kernel: for a shell that is 128 + the signal, too."""
        at_once = lambda process: catches(process, signal.SIGALRM)
        asked = lambda process: catches(process, signal.SIGTERM)
        reads = lambda process: "model.safetensors" in pathlib.Path(f"/proc/{process.pid}/maps").read_text()
        sparse_model(self.folder / "model")
        (self.folder / "text").write_bytes(b"word " * (1 << 22))
        (self.folder / "deep.yaml").write_text(DEEP)
        (self.folder / "cluster.yaml").write_text(CLUSTER)
        rows = [
            ("plan", ["plan", "deep.yaml", "--cluster", "cluster.yaml"], lambda process: at_once(process) and computed_s(process) > 0.3),
            ("bench", ["bench", "all_reduce", "--sizes", "64M", "--seconds", "1000"], at_once),
            ("sim recovery", ["sim", "recovery", "--seeds", "1000000"], asked),
            ("data prepare", ["data", "prepare", *["text"] * 50, "--tokenizer", "byte", "--threads", "1", "--out", "shards"], asked),
            ("convert", ["convert", "model", "converted"], lambda process: (self.folder / "converted.tmp").exists()),
            ("generate", ["generate", "model", "--tokenizer", "byte", "--max-tokens", "60"], reads),
        ]
        for i, (name, words, is_there) in enumerate(rows):
            number = (signal.SIGTERM, signal.SIGINT)[i % 2]
            with self.subTest(command=name, signal=number.name):
                process = self.start(TRIREME, *words)
                self.until(lambda: is_there(process), process)
                process.send_signal(number)
                output = process.communicate(timeout=LIMIT_S)[0]
                self.assertIn(process.returncode, (128 + number, -number), output)
                self.assertFalse((self.folder / "converted").exists())
                self.assertEqual(list((self.folder / "shards").glob("*")), [])

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
