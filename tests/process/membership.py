#!/usr/bin/env python3
"""Processes that want to join a run and do not fit, or cannot reach its workers: they alone are refused or wait, and the
run goes on as if they were not there.

usage: membership.py TRIREME
"""
import os
import re
import signal
import unittest

from elastic import LONG, Runs
from launched import workers_in

TOKEN = "0123456789abcdef-membership"
# What a newcomer has other than the run, and how the difference is named.
MISFITS = [
    ("optim.lr=0.5", "optim.lr: want 0.01, got 0.5"),
    ("train.seed=7", "train.seed: want 1, got 7"),
    ("train.batch=30", "train.batch: want 60, got 30"),
    ("data.synthetic_count=300", "data.synthetic_count: want 600, got 300"),
    ("parallel.sync=zero1", "parallel.sync: want allreduce, got zero1"),
    ("train.eval_every=3", "train.eval_every: want 20, got 3"),
    ("checkpoint.every_steps=7", "checkpoint.every_steps: want 0, got 7"),
    ("train.steps=77", "train.steps: want 10000, got 77"),
    ("comm.transport=tcp", "comm.transport: want auto, got tcp"),
    ("comm.encrypt=on", "comm.encrypt: want false, got true"),
]


class Membership(Runs):
    """Beside a run of two or three workers."""


    def setUp(self):
        super().setUp()
        os.environ["TRIREME_TOKEN"] = TOKEN
        self.addCleanup(os.environ.pop, "TRIREME_TOKEN")

    def test_newcomers_that_do_not_fit_are_refused_alone(self):
        first = self.start_running("run", "-n", "2", "--elastic", "1:8", "--listen", "127.0.0.1", *LONG)
        address = re.search(r"--join (\S+),", first.text()).group(1)
        for word, difference in MISFITS:
            with self.subTest(word):
                other = self.start("run", "-n", "1", "--join", address, "--elastic", "1:8", *LONG, word)
                self.assertEqual(other.end(), 2, other.text())
                self.assertIn("cannot join this run: ", other.text())
                self.assertIn(difference, other.text())
                self.assertTrue(first.is_running(), first.text())
        self.check(first, *LONG)
        self.assertNotIn("generation 2", first.text())

    def test_a_replacement_that_does_not_fit_is_not_started_again(self):
        first = self.start_running("run", "-n", "3", "--elastic", "1:8", "--restarts", "9", *LONG)
        path = self.path / "run.yaml"
        before = path.read_text()
        path.write_text(before.replace("lr: 0.01", "lr: 0.02"))
        os.kill(workers_in(self.path)[1], signal.SIGKILL)
        self.assertTrue(first.wait_for("does not fit the run and is not started again; the others go on"), first.text())
        path.write_text(before)
        self.assertIn("optim.lr: want 0.01, got 0.02", first.text())
        self.assertEqual(first.text().count("started again"), 2, first.text())  # the dead one, and the line above
        self.check(first, *LONG)


if __name__ == "__main__":
    unittest.main()
