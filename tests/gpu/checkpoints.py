#!/usr/bin/env python3
"""Checkpoints copied from a card during training: each has the weights of its own step, and a run resumed from it ends with
the weights of one that never stopped.

usage: checkpoints.py TRIREME
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TRIREME = pathlib.Path(sys.argv.pop(1)).resolve()
OPTIONS = ("train.device=cuda model.name=mlp model.hidden=[16] data.name=synthetic data.synthetic_count=120 train.batch=24 train.epochs=400 "
           "train.threads=1 optim.name=adamw train.eval_every=0 checkpoint.every_steps=2 checkpoint.keep=10").split()


class Checkpoints(unittest.TestCase):
    def train(self, *words):
        done = subprocess.run([TRIREME, "train", *words], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout)
        return re.search(r"^weights: (xxh3 [0-9a-f]{16})$", done.stdout, re.M)[1]

    def check(self, *layout):
        with tempfile.TemporaryDirectory() as folder:
            self.folder = pathlib.Path(folder)
            (self.folder / "run.yaml").write_text("{}\n")
            weights = {steps: self.train("run.yaml", "--out", f"run{steps}", f"train.steps={steps}", *layout, *OPTIONS) for steps in (2, 4, 8)}
            checkpoints = self.folder / "run8/checkpoints"
            for steps in (2, 4):
                manifest = json.loads((checkpoints / f"step-{steps:08}/manifest.json").read_text())
                self.assertEqual(manifest["weights"], weights[steps])
            for steps in (4, 6, 8):
                shutil.rmtree(checkpoints / f"step-{steps:08}")
            self.assertEqual(self.train("--resume", "run8", *layout[:2]), weights[8])

    def test_of_one_rank(self):
        self.check()

    def test_of_ranks_that_share_the_state_out(self):
        self.check("-n", "2", "parallel.sync=zero1")


if __name__ == "__main__":
    unittest.main()
