#!/usr/bin/env python3
"""Processes that want to join a run and do not fit, or cannot reach its workers: they alone are refused or wait, and the
run goes on as if they were not there.

usage: membership.py TRIREME
"""
import os
import re
import signal
import subprocess
import unittest

from elastic import FOR_EVER, Runs
from launched import TRIREME, workers_in

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
    ("train.steps=77", "train.steps: want 100000000, got 77"),
    ("comm.transport=tcp", "comm.transport: want auto, got tcp"),
    ("comm.encrypt=on", "comm.encrypt: want false, got true"),
    ("train.isa=generic", "instruction set (train.isa): want "),
]


class Membership(Runs):
    """Beside a run of two or three workers."""


    def setUp(self):
        super().setUp()
        os.environ["TRIREME_TOKEN"] = TOKEN
        self.addCleanup(os.environ.pop, "TRIREME_TOKEN")

    def test_newcomers_that_do_not_fit_are_refused_alone(self):
        first = self.start_running("run", "-n", "2", "--elastic", "1:8", "--listen", "127.0.0.1", *FOR_EVER)
        address = re.search(r"--join (\S+),", first.text()).group(1)
        others = [self.start(f"run{i}", "-n", "1", "--join", address, "--elastic", "1:8", *FOR_EVER, word) for i, (word, _) in enumerate(MISFITS)]
        for other, (word, difference) in zip(others, MISFITS):
            with self.subTest(word):
                self.assertEqual(other.end(), 2, other.text())
                self.assertIn("cannot join this run: ", other.text())
                self.assertIn(difference, other.text())
                self.assertTrue(first.is_running(), first.text())
        self.check(first, *FOR_EVER)
        self.assertNotIn("generation 2", first.text())

    def start_beside(self, store, rank, *words):
        """One of two workers that somebody else starts, beside a store."""
        place = {"TRIREME_STORE": f"tcp://{store}", "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        os.environ.update(place)
        run = self.start("beside", "--elastic", "1:3", *words)
        for name in place:
            del os.environ[name]
        return run

    def test_the_first_workers_agree_on_an_instruction_set_that_stays(self):
        """The second worker has less, and so do all, also in a run that is resumed."""
        words, common = ("train.steps=300",), "all workers compute with the instruction set generic"
        with subprocess.Popen([TRIREME, "store", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True) as store:
            address = store.stderr.readline().split()[-1]
            second = self.start_beside(address, 1, *words, "train.isa=generic")
            first = self.start_beside(address, 0, *words)
            self.assertEqual(first.end(), 0, first.text())
            self.assertEqual(second.end(), 0, second.text())
            store.terminate()
        text = first.text() + second.text()
        self.assertIn(common, text)
        self.assertIn(self.weights(*words, "train.isa=generic"), text)
        again = self.start("beside", "--resume", "beside", "-n", "1", "--elastic", "1:1", "train.steps=301")
        self.assertEqual(again.end(), 0, again.text())
        self.assertIn(common, again.text())
        self.assertNotIn("other kernels", again.text())

    def test_a_replacement_that_does_not_fit_is_not_started_again(self):
        first = self.start_running("run", "-n", "3", "--elastic", "1:8", "--restarts", "9", *FOR_EVER)
        path = self.path / "run.yaml"
        before = path.read_text()
        path.write_text(before.replace("lr: 0.01", "lr: 0.02"))
        os.kill(workers_in(self.path)[1], signal.SIGKILL)
        self.assertTrue(first.wait_for("does not fit the run and is not started again; the others continue"), first.text())
        path.write_text(before)
        self.assertIn("optim.lr: want 0.01, got 0.02", first.text())
        self.assertEqual(first.text().count("started again"), 2, first.text())  # the dead one, and the line above
        self.check(first, *FOR_EVER)


if __name__ == "__main__":
    unittest.main()
