#!/usr/bin/env python3
"""RUN/ledger: the same bytes for any number of workers and layout, also of a run that was continued or whose workers were killed; and
`trireme ledger` names what is wrong.

usage: ledger.py TRIREME
"""
import json
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import elastic
from launched import LIMIT_S, TRIREME

CONFIG = """
model: {name: mlp, hidden: [16, 16]}
data: {name: synthetic, synthetic_count: 110, synthetic_width: 16}
train: {batch: 20, shards: 8, epochs: 100, steps: 17, threads: 1}
parallel: {tensor_parts: 2}
"""
HEAD, LANES, BITS = 64, 4, 11


def mark(index):
    """Lanes of a sample's mark (src/data/sampler.c)."""
    wide = (1 << 64) - 1
    bits = (index + 0x9E3779B97F4A7C15) & wide
    bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & wide
    bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & wide
    bits ^= bits >> 31
    return [bits >> 16 * lane & 2047 for lane in range(LANES)]


class Ledger(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.temporary.name)
        (self.path / "run.yaml").write_text(CONFIG)

    def tearDown(self):
        self.temporary.cleanup()

    def train(self, name, *words):
        done = subprocess.run([TRIREME, "train", "run.yaml", "--out", name, *words], cwd=self.path, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stdout)

    def bytes_of(self, name):
        return (self.path / name / "ledger").read_bytes()

    def audit(self, name, code):
        done = subprocess.run([TRIREME, "ledger", name], cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def test_all_layouts_and_continued_runs_have_the_same(self):
        self.train("alone")
        self.assertIn("once in 2 epochs; of epoch 2 so far 100 samples", self.audit("alone", 0))
        for number, words in enumerate((("-n", "3"), ("-n", "2", "parallel.sync=zero3"), ("-n", "4", "parallel.tensor=2"),
                                        ("-n", "4", "parallel.pipeline=2"), ("-n", "2", "parallel.compress=int8"))):
            self.train(f"run{number}", *words)
            self.assertEqual(self.bytes_of(f"run{number}"), self.bytes_of("alone"), words)
        self.train("parts", "-n", "2", "train.steps=8")
        self.train("parts", "-n", "3", "--resume", "parts")
        self.assertEqual(self.bytes_of("parts"), self.bytes_of("alone"))

    def test_a_checkpoint_has_the_steps_before_it(self):
        """Everybody is killed as soon as it is there, and the run goes on from it."""
        (self.path / "run.yaml").write_text(elastic.CONFIG)
        run = elastic.Run(self.path, "killed", "-n", "2", "train.steps=100000", "checkpoint.every_steps=50")
        until = time.monotonic() + LIMIT_S
        while not list((self.path / "killed").glob("checkpoints/step-*[0-9]/manifest.json")) and run.is_running() and time.monotonic() < until:
            time.sleep(0.001)
        run.process.kill()
        run.end()
        steps = max(int(re.search(r"\d+", place.parent.name)[0]) for place in (self.path / "killed").glob("checkpoints/step-*[0-9]/manifest.json"))
        self.train("killed", "-n", "1", "--resume", "killed", f"train.steps={steps + 20}")
        self.audit("killed", 0)

    def test_what_is_wrong_is_named(self):
        self.train("run")
        whole = self.bytes_of("run")
        self.assertEqual(len(whole), HEAD + 8 * 17)

        def changed(step, index, sign):
            data = bytearray(whole)
            entry = int.from_bytes(data[HEAD + 8 * step:HEAD + 8 * step + 8], "little")
            for lane, value in enumerate(mark(index)):
                at = BITS * lane
                entry = entry & ~(2047 << at) | ((entry >> at & 2047) + sign * value & 2047) << at
            data[HEAD + 8 * step:HEAD + 8 * step + 8] = entry.to_bytes(8, "little")
            return bytes(data)

        self.assertIn("sample 42 was used besides", self.told(changed(3, 42, 1)))
        self.told(changed(3, 42, -1))
        used = [index for index in range(110) if f"sample {index} was not used" in self.told(changed(4, index, -1))]
        self.assertEqual(len(used), 20)
        gap = whole[:HEAD + 8 * 9] + bytes(8) + whole[HEAD + 8 * 10:]
        self.assertIn("step 9 (epoch 1): is not in the ledger; it was to use samples", self.told(gap))
        self.assertIn("want a ledger", self.told(whole[:40]))
        self.assertIn("want a ledger", self.told(b"x" * 200))

    def test_a_damaged_head_is_one_line_at_once(self):
        self.train("run")
        whole = self.bytes_of("run")
        for place, value, says in ((8, 1 << 61, "damaged: no run has 110 samples in batches of 20 and 8 shards from step 2305843009213693952 on"),
                                   (24, 1 << 41, "damaged: no run has 2199023255552 samples"), (24, 0, "no run has 0 samples"),
                                   (32, 1 << 31, "in batches of 2147483648"), (32, 7, "in batches of 7 and 8 shards"),
                                   (40, 1 << 31, "and 2147483648 shards"), (48, 2, "damaged"),
                                   (24, 1 << 32, "17 used other samples"), (32, 1 << 29, "17 used other samples")):
            data = whole[:place] + value.to_bytes(8, "little") + whole[place + 8:]
            (self.path / "run" / "ledger").write_bytes(data)
            done = subprocess.run([TRIREME, "ledger", "run"], cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=LIMIT_S)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(says, done.stdout)

    def told(self, data):
        (self.path / "run" / "ledger").write_bytes(data)
        return self.audit("run", 1)

    def test_killed_workers_leave_a_whole_one(self):
        (self.path / "run.yaml").write_text(elastic.CONFIG)
        run = elastic.Run(self.path, "killed", "-n", "4", "--elastic", "1:8", "--restarts", "9", *elastic.FOR_EVER)
        run.wait_for_steps()
        for count, rank in enumerate((0, 2, 0), 1):
            run.signal(rank, signal.SIGKILL)
            self.assertTrue(run.wait_for(": 4 workers, step", count), run.text())
        run.process.terminate()
        self.assertEqual(run.end(), 128 + signal.SIGTERM, run.text())
        steps = elastic.last_saved(self.path / "killed")
        done = subprocess.run([TRIREME, "ledger", "killed", "--json"], cwd=self.path, stdout=subprocess.PIPE, text=True)
        told = json.loads(done.stdout)
        self.assertTrue(told["whole"] and told["end"] == steps and told["epochs"] == steps // 10 and told["generations"] > 1, told)


if __name__ == "__main__":
    unittest.main(verbosity=2)
