#!/usr/bin/env python3
"""Workers that are killed, stopped, leave and join while the others go on: the `weights:` line of one process, each step
once in metrics.jsonl, and clear words where that cannot be.

usage: elastic.py TRIREME
"""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from launched import LIMIT_S, TRIREME, long_test, ranks_of, workers_in
from steps import has_steps

CONFIG = """
model:
  layers:
    - reshape: [4, 4, 2]
    - conv2d: {out: 4, kernel: 3, pad: 1}
    - batch_norm
    - relu
    - flatten
    - dropout: 0.2
    - linear: {out: 300, relu: true}
    - linear: classes
data: {name: synthetic, synthetic_count: 600, synthetic_width: 32}
train: {batch: 60, epochs: 4000, steps: 1500, shards: 8, eval_every: 20}
optim: {name: adamw, lr: 0.01, clip_norm: 1}
comm: {timeout_s: 60}
"""
LONG = ("train.steps=10000",)
FOR_EVER = ("train.steps=100000000", "train.epochs=100000000")  # until check() asks it to end


def last_saved(run):
    return max((int(path.name[5:]) for path in (run / "checkpoints").glob("step-*")), default=0)


class Run:
    """A run in the background; its lines come with the time at which they were read."""

    def __init__(self, folder, name, *words, before=()):
        self.name, self.folder, self.lines = name, pathlib.Path(folder), []
        begins = [] if "--attach" in words else ["run.yaml", "--out", name]
        self.process = subprocess.Popen([*before, TRIREME, "train", *begins, *words], cwd=folder,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))

    def text(self):
        return "".join(line for _, line in self.lines)

    def is_running(self):
        return self.process.poll() is None

    def wait_for(self, words, count=1, limit=LIMIT_S):
        until = time.monotonic() + limit
        while self.text().count(words) < count and self.is_running() and time.monotonic() < until:
            time.sleep(0.005)
        return self.text().count(words) >= count

    def wait_for_steps(self, limit=LIMIT_S):
        until = time.monotonic() + limit
        while not has_steps(self.folder / self.name) and self.is_running() and time.monotonic() < until:
            time.sleep(0.01)

    def signal(self, rank, number):
        pid = ranks_of(self.process.pid).get(rank)
        if pid:
            try:
                os.kill(pid, number)
                return pid
            except ProcessLookupError:
                pass
        return None

    def end(self, limit=LIMIT_S):
        self.process.wait(limit)
        self.reader.join()
        self.process.stdout.close()
        return self.process.returncode


class Runs(unittest.TestCase):
    """What tests of such runs share."""
    config = CONFIG
    alone = {}  # hashes of one process, by configuration and words

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.temporary.name)
        (self.path / "run.yaml").write_text(self.config)
        self.running = []

    def tearDown(self):
        for run in self.running:
            if run.is_running():
                run.process.kill()
            run.end()
        for pid in workers_in(self.path).values():  # they outlive their launcher
            os.kill(pid, signal.SIGKILL)
        self.temporary.cleanup()

    def start(self, name, *words):
        run = Run(self.path, name, *words)
        self.running.append(run)
        return run

    def hash_of(self, run):
        found = re.findall(r"weights: xxh3 (\w+)", run.text())
        self.assertGreaterEqual(len(found), 1, run.text())
        return found[-1]

    def weights(self, *words):
        key = (self.config, *words)
        if key not in Runs.alone:
            run = self.start("alone", "--overwrite", *words)
            self.assertEqual(run.end(), 0, run.text())
            Runs.alone[key] = self.hash_of(run)
        return Runs.alone[key]

    def check(self, run, *words):
        """It ended well, with the weights of one process and every step once. FOR_EVER: it is asked to end, and saves them."""
        if FOR_EVER[0] in words:
            self.assertTrue(run.is_running(), run.text())
            run.process.terminate()
            self.assertEqual(run.end(), 128 + signal.SIGTERM, run.text())
            step = last_saved(self.path / run.name)
            manifest = json.loads((self.path / run.name / f"checkpoints/step-{step:08}/manifest.json").read_text())
            words, found = [word for word in words if word not in FOR_EVER] + [f"train.steps={step}"], manifest["weights"].split()[1]
        else:
            self.assertEqual(run.end(), 0, run.text())
            found = self.hash_of(run)
        self.assertEqual(found, self.weights(*words), run.text())
        records = [json.loads(line) for line in (self.path / run.name / "metrics.jsonl").read_text().splitlines()]
        steps = [record["step"] for record in records if "loss" in record]
        self.assertEqual(steps, list(range(len(steps))), run.text())
        wanted = [word for word in reversed(words) if word.startswith("train.steps=")] or re.findall(r"steps: (\d+)", self.config)
        self.assertEqual(len(steps), int(wanted[0].split("=")[-1]), run.text())
        tests = [record["step"] for record in records if "test_loss" in record]
        self.assertEqual(tests, sorted(set(tests)), run.text())

    def start_running(self, name, *words):
        run = self.start(name, *words)
        run.wait_for_steps()
        return run


class Elastic(Runs):
    def test_a_quiet_run(self):
        self.check(self.start("quiet", "-n", "3", "--elastic", "1:8"))

    @long_test
    def test_killed_workers_are_done_without(self):
        for seed, workers in ((1, 4), (2, 3)):
            draw = random.Random(seed)
            run = self.start_running(f"killed{seed}", "-n", str(workers), "--elastic", "1:8", *LONG)
            left = list(range(workers))
            while len(left) > 1 and run.is_running():
                time.sleep(0.05 + 0.3 * draw.random())
                rank = left.pop(draw.randrange(len(left)))
                self.assertTrue(run.signal(rank, signal.SIGKILL), "the run was over too soon")
            self.check(run, *LONG)
            self.assertIn("the others continue", run.text())

    @long_test
    def test_f16_and_sums_over_the_batch(self):
        """What else a state consists of: the scale of the loss; and calls in the middle of the forward pass."""
        words = ("train.precision=f16", "model.sync_batch_norm=true")
        alone = self.weights(*words)
        run = self.start_running("f16", "-n", "4", "--elastic", "2:8", "--restarts", "9", *words)
        for rank in (0, 2):
            run.signal(rank, signal.SIGKILL)
            time.sleep(0.2)
        self.assertEqual(run.end(), 0, run.text())
        self.assertEqual(self.hash_of(run), alone, run.text())

    @long_test
    def test_ranks_that_go_apart_and_sums_that_are_rounded(self):
        """Their bits depend on who comes and goes: those of a quiet run are what they are without --elastic; else each
        step is made once, by all that are there, and the model is as good."""
        steps = ("train.steps=2500",)
        for name, *words in (
                ("local", "parallel.sync=local", "parallel.local_steps=20"),
                ("diloco", "parallel.sync=diloco", "parallel.local_steps=20", "parallel.outer_fragments=3"),
                ("rounded", "parallel.compress=int8", "parallel.compress_between=ranks")):
            plain, quiet = (self.start(f"{name}-{kind}", "-n", "3", *more, *words, "train.steps=90")
                            for kind, more in (("plain", ()), ("quiet", ("--elastic", "1:8"))))
            self.assertEqual((plain.end(), quiet.end()), (0, 0), plain.text() + quiet.text())
            self.assertEqual(self.hash_of(quiet), self.hash_of(plain))
            self.assertIn("with --elastic: as workers come and go", quiet.text())
            ledgers = [(self.path / f"{name}-{kind}" / "ledger").exists() for kind in ("plain", "quiet")]
            self.assertEqual(ledgers, [name == "rounded"] * 2)
            run = self.start_running(name, "-n", "3", "--elastic", "1:8", "--restarts", "9", *words, *steps)
            for rank, number, says in ((0, signal.SIGKILL, ": 3 workers, step"), (1, signal.SIGTERM, "leaves after step")):
                self.assertTrue(run.signal(rank, number), run.text())
                self.assertTrue(run.wait_for(says), run.text())
            self.assertEqual(run.end(), 0, run.text())
            records = [json.loads(line) for line in (self.path / name / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual([r["step"] for r in records if "loss" in r], list(range(2500)), run.text())
            self.assertGreater(float(re.findall(r"^test accuracy (\S+)", run.text(), re.M)[-1]), 0.6, run.text())

    def rough(self, seed, workers, faults, pauses):
        """Kills, also two at once and while the others find each other again, stops, and one that is asked to leave."""
        draw = random.Random(seed)
        run = self.start_running(f"rough{seed}", "-n", str(workers), "--elastic", "1:8", "--restarts", "1000", *LONG)
        timers, done = [], 0
        while done < faults and run.is_running():
            time.sleep(draw.choice(pauses) * (0.5 + draw.random()))
            ranks = sorted(ranks_of(run.process.pid))
            what = draw.choice(["kill", "kill", "kill", "two", "stop"]) if done != 1 else "leave"
            if len(ranks) < 3:
                continue
            rank, other = draw.sample(ranks, 2)
            done += 1
            if what == "leave":
                run.signal(rank, signal.SIGTERM)
            elif what == "stop":
                pid = run.signal(rank, signal.SIGSTOP)
                timers.append(threading.Timer(draw.choice([0.05, 0.5, 1]), self.signal_to, [pid]))
                timers[-1].start()
            else:
                run.signal(rank, signal.SIGKILL)
            if what == "two":
                time.sleep(0.05 * draw.random())
                run.signal(other, signal.SIGKILL)
        for timer in timers:
            timer.join()
        self.check(run, *LONG)
        return run

    @staticmethod
    def signal_to(pid, number=signal.SIGCONT):
        try:
            os.kill(pid, number)
        except (ProcessLookupError, TypeError):
            pass

    @long_test
    def test_all_kinds_of_faults(self):
        self.rough(1, 4, 8, [0.02, 0.1, 0.3])
        self.rough(2, 5, 8, [0.01, 0.2])

    def test_one_that_is_asked_to_leaves_and_the_others_continue(self):
        run = self.start_running("leave", "-n", "3", "--elastic", "2:8", *FOR_EVER)
        run.signal(0, signal.SIGTERM)
        self.assertTrue(run.wait_for("generation 2: 2 workers"), run.text())
        self.check(run, *FOR_EVER)
        self.assertIn("leaves after step", run.text())
        self.assertNotIn("killed", run.text())

    @long_test
    def test_one_that_is_asked_to_has_a_grace_to_end_its_step(self):
        run = self.start_running("grace", "-n", "3", "--elastic", "1:3", "--grace", "60", "--restarts", "2", *LONG)
        run.signal(2, signal.SIGTERM)
        self.assertTrue(run.wait_for("leaves after step"), run.text())
        self.check(run, *LONG)
        self.assertNotIn("leaves at once", run.text())

    @long_test
    def test_one_whose_step_does_not_end_within_its_grace_leaves_at_once(self):
        # One that stands still, and is not given up for it, makes the step last; what only the one that leaves has is in
        # a mirror.
        run = self.start_running("late", "-n", "3", "--elastic", "1:3", "--grace", "1", "--restarts", "2", "parallel.sync=zero2",
                                 "comm.heartbeat_ms=10000", *LONG)
        stopped = run.signal(1, signal.SIGSTOP)
        run.signal(2, signal.SIGTERM)
        self.assertTrue(run.wait_for("worker 2 left before its step had ended (exit code 143); the others continue"), run.text())
        os.kill(stopped, signal.SIGCONT)
        self.check(run, *LONG)
        self.assertIn("leaves at once, as if it had been killed, before --grace (1 s) is over", run.text())
        self.assertNotIn("started again", run.text())

    def test_a_stopped_worker_is_done_without_and_comes_back(self):
        run = self.start_running("stop", "-n", "3", "--elastic", "1:8", *FOR_EVER)
        pid = run.signal(0, signal.SIGSTOP)
        self.assertTrue(run.wait_for("generation 2: 2 workers"), run.text())
        os.kill(pid, signal.SIGCONT)
        self.assertTrue(run.wait_for("generation 3: 3 workers"), run.text())
        self.check(run, *FOR_EVER)

    @long_test
    def test_who_was_away_is_behind_what_is_saved(self):
        """All that had gone on without it are lost: the newest checkpoint counts, not what it still has."""
        words = ("train.steps=4000",)
        for sync in ("allreduce", "zero1"):
            run = self.start_running(sync, "-n", "2", "--elastic", "1:2", "--restarts", "9", f"parallel.sync={sync}", "checkpoint.every_steps=100",
                                     *words)
            away, other = run.signal(0, signal.SIGSTOP), ranks_of(run.process.pid)[1]
            self.assertTrue(run.wait_for("generation 2: "), run.text())
            begun, until = last_saved(self.path / sync), time.monotonic() + LIMIT_S
            while last_saved(self.path / sync) < begun + 300 and time.monotonic() < until:
                time.sleep(0.01)
            os.kill(other, signal.SIGKILL)
            os.kill(away, signal.SIGCONT)
            self.check(run, *words)
            self.assertRegex(run.text(), r"what they have is older than what is saved: the run continues from step \d+00, its newest checkpoint")

    @long_test
    def test_a_spare_takes_the_place_of_one_that_is_missing(self):
        run = self.start_running("spare", "-n", "3", "--elastic", "1:3", "--spares", "1", "--restarts", "9", *LONG)
        for count, (rank, number) in enumerate(((1, signal.SIGKILL), (0, signal.SIGKILL), (2, signal.SIGTERM)), 1):
            self.assertTrue(run.wait_for("waits as a spare", count), run.text())
            self.assertTrue(run.signal(rank, number), run.text())
            self.assertTrue(run.wait_for(f"generation {count + 1}: 3 workers"), run.text())
        self.check(run, *LONG)
        self.assertNotRegex(run.text(), "generation .* 2 workers")
        self.assertEqual(len(re.findall(r"is rank \d of generation", run.text())), 3, run.text())

    @long_test
    def test_too_few_are_waited_for_then_saved(self):
        run = self.start_running("few", "-n", "3", "--elastic", "3:8", "--wait", "1", *LONG)
        run.signal(1, signal.SIGKILL)
        self.assertEqual(run.end(), 3, run.text())
        self.assertRegex(run.text(), r"2 workers are left after step \d+, want at least 3")
        run = self.start("few", "-n", "2", "--elastic", "2:8", "--resume", "few", *LONG)
        self.check(run, *LONG)

    def test_when_all_are_killed_the_newest_checkpoint_continues(self):
        words = ("checkpoint.every_steps=100", *FOR_EVER)
        run = self.start_running("all", "-n", "2", "--elastic", "1:8", "--restarts", "9", *words)
        while run.is_running() and not list((self.path / "all" / "checkpoints").glob("*")):
            time.sleep(0.01)
        for pid in ranks_of(run.process.pid).values():
            os.kill(pid, signal.SIGKILL)
        self.assertTrue(run.wait_for("none of the workers so far is left: the run continues from step"), run.text())
        self.check(run, *FOR_EVER)

    def test_all_meet_at_a_checkpoint_that_is_due_by_time(self):
        words = ("train.verify_every=off", "checkpoint.every_s=0.02")
        run = self.start("timed", "-n", "2", "--elastic", "1:2", *words)
        self.check(run, *words)
        self.assertGreater((self.path / "timed" / "metrics.jsonl").read_text().count('"checkpoint":'), 1, run.text())

    @long_test
    def test_ctrl_c_saves_and_the_run_can_be_continued(self):
        run = self.start_running("stopped", "-n", "2", "--elastic", "1:8", *LONG)
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.end(), 130, run.text())
        self.assertIn("is saved: --resume continues", run.text())
        self.check(self.start("stopped", "-n", "3", "--elastic", "1:8", "--resume", "stopped", *LONG), *LONG)

    def test_a_launcher_that_is_asked_to_end_says_by_which_signal(self):
        run = self.start_running("asked", "-n", "2", "--elastic", "1:8", *FOR_EVER)
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(run.end(), 128 + signal.SIGTERM, run.text())
        self.assertIn("is saved: --resume continues", run.text())

    def test_one_that_is_killed_as_the_run_is_stopped_does_not_change_how_it_ends(self):
        """The launcher stands still until both have happened, and hears of the signal first."""
        run = self.start_running("run", "-n", "3", "--elastic", "1:8", *FOR_EVER)
        run.process.send_signal(signal.SIGSTOP)
        os.kill(workers_in(self.path)[2], signal.SIGKILL)
        run.process.terminate()
        run.process.send_signal(signal.SIGCONT)
        self.assertEqual(run.end(), 128 + signal.SIGTERM, run.text())
        self.assertIn("rank 2 was killed by signal 9 (Killed)", run.text())
        self.assertIn("which is saved: --resume continues", run.text())

    def test_what_cannot_be_is_refused(self):
        for words, says in (
            (["--elastic", "3"], "--elastic: want MIN:MAX"),
            (["-n", "2", "--elastic", "3:8"], "want as many workers to begin with, got -n 2"),
            (["-n", "2", "--elastic", "1:9"], "want at most train.shards workers, 8"),
            (["-n", "2", "--elastic", "1:8", "--servers", "1"], "--elastic cannot be combined with --servers"),
            (["-n", "2", "--elastic", "1:8", "parallel.sync=local", "parallel.outer_delay=1"], "parallel.outer_delay 0"),
            (["-n", "4", "--elastic", "2:8", "model.sync_batch_norm=true", "train.shards_at_once=2"], "with --elastic train.shards_at_once 0"),
            (["-n", "2", "--elastic", "1:8", "parallel.tensor=2"], "needs parallel.tensor_parts"),
            (["-n", "2", "--elastic", "1:8", "parallel.pipeline=auto"], "both auto: give one of them a number"),
            (["-n", "4", "--elastic", "1:8", "parallel.sync=zero1", "parallel.zero_ranks=2"], "--elastic requires parallel.zero_ranks all"),
            (["-n", "2", "--elastic", "1:8", "comm.heartbeat_ms=0"], "comm.heartbeat_ms above 0"),
            (["-n", "2", "--wait", "3"], "--wait requires --elastic"),
            (["-n", "2", "train.on_straggler=replace"], "train.on_straggler replace requires --elastic"),
            (["-n", "2", "--elastic", "1:8", "train.on_straggler=replace", "monitor.watch_every_s=0"], "want monitor.watch_every_s above 0, got 0"),
            (["-n", "2", "--spares", "1"], "--spares requires -n N and --elastic"),
            (["-n", "2", "--elastic", "1:3", "--spares", "1"], "spares wait while the 3 workers of --elastic 1:3 are there: want -n 3, got 2"),
            (["--elastic", "1:8"], "was started by alone"),
        ):
            run = self.start("refused", *words)
            self.assertEqual(run.end(), 2, run.text())
            self.assertIn(says, run.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
