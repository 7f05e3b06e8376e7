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
import sys
import tempfile
import threading
import time
import unittest

TRIREME = str(pathlib.Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else "trireme"
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


def environment_of(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(item.split("=", 1) for item in text.split("\0") if "=" in item)


def workers_of(launcher):
    """Processes of a launcher by the number they were started as."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            is_ours = os.readlink(f"/proc/{pid}/exe") == TRIREME
        except (OSError, IndexError):
            continue
        if int(fields[1]) == launcher and is_ours and fields[0] != "Z":
            rank = environment_of(pid).get("TRIREME_RANK")
            if rank is not None:
                found[int(rank)] = int(pid)
    return found


class Run:
    """A run in the background; its lines come with the time at which they were read."""

    def __init__(self, folder, name, *words):
        self.name, self.folder, self.lines = name, pathlib.Path(folder), []
        self.process = subprocess.Popen([TRIREME, "train", "run.yaml", "--out", name, *words], cwd=folder,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))

    def text(self):
        return "".join(line for _, line in self.lines)

    def is_running(self):
        return self.process.poll() is None

    def wait_for(self, words, count=1, limit=60):
        until = time.monotonic() + limit
        while self.text().count(words) < count and self.is_running() and time.monotonic() < until:
            time.sleep(0.005)
        return self.text().count(words) >= count

    def wait_for_steps(self, limit=60):
        log, until = self.folder / self.name / "metrics.jsonl", time.monotonic() + limit
        while (not log.exists() or log.stat().st_size == 0) and self.is_running() and time.monotonic() < until:
            time.sleep(0.01)

    def signal(self, rank, number):
        pid = workers_of(self.process.pid).get(rank)
        if pid:
            try:
                os.kill(pid, number)
                return pid
            except ProcessLookupError:
                pass
        return None

    def end(self, limit=240):
        self.process.wait(limit)
        self.reader.join()
        return self.process.returncode


class Elastic(unittest.TestCase):
    alone = {}  # hashes of one process, by words

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.temporary.name)
        (self.path / "run.yaml").write_text(CONFIG)
        self.running = []

    def tearDown(self):
        for run in self.running:
            if run.is_running():
                run.process.kill()
            run.end()
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
        if words not in Elastic.alone:
            run = self.start("alone", *words)
            self.assertEqual(run.end(), 0, run.text())
            Elastic.alone[words] = self.hash_of(run)
        return Elastic.alone[words]

    def check(self, run, *words):
        """It ended well, with the weights of one process and every step once."""
        self.assertEqual(run.end(), 0, run.text())
        self.assertEqual(self.hash_of(run), self.weights(*words), run.text())
        records = [json.loads(line) for line in (self.path / run.name / "metrics.jsonl").read_text().splitlines()]
        steps = [record["step"] for record in records if "loss" in record]
        self.assertEqual(steps, list(range(len(steps))), run.text())
        self.assertEqual(len(steps), int(re.search(r"steps: (\d+)", CONFIG).group(1)), run.text())
        tests = [record["step"] for record in records if "test_loss" in record]
        self.assertEqual(tests, sorted(set(tests)), run.text())

    def test_a_quiet_run(self):
        run = self.start("quiet", "-n", "3", "--elastic", "1:8")
        self.check(run)

    def test_killed_workers_are_done_without(self):
        for seed, workers in ((1, 4), (2, 3)):
            draw = random.Random(seed)
            run = self.start(f"killed{seed}", "-n", str(workers), "--elastic", "1:8")
            run.wait_for_steps()
            left = list(range(workers))
            while len(left) > 1 and run.is_running():
                time.sleep(0.05 + 0.3 * draw.random())
                rank = left.pop(draw.randrange(len(left)))
                self.assertTrue(run.signal(rank, signal.SIGKILL), "the run was over too soon")
            self.check(run)
            self.assertIn("the others go on", run.text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
