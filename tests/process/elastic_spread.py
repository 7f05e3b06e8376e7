#!/usr/bin/env python3
"""Workers with a state that no one of them has whole: slices of it, parts of layers, stages. They are killed and leave, and
what they held is in the memory of others: the `weights:` line of one process, without a checkpoint; or clear words.

usage: elastic_spread.py TRIREME
"""
import json
import os
import re
import signal
import time
import unittest

from elastic import Runs
from chaos import chaos
from launched import ranks_of

SLICES = Runs.config.replace("steps: 1500", "steps: 3000").replace("comm:", "parallel: {bucket_kib: 4}\ncomm:")
STAGES = """
model: {name: gpt2, n_layer: 4, n_head: 4, n_embd: 16, resid_pdrop: 0.1, embd_pdrop: 0.1, attn_pdrop: 0.1, tie_word_embeddings: true}
data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 75, synthetic_width: 12}
train: {batch: 20, shards: 8, epochs: 4000, steps: 600, seed: 7, threads: 1, eval_every: 100}
optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1}
parallel: {bucket_kib: 4, tensor_parts: 2}
comm: {timeout_s: 60}
"""


class Spread(Runs):
    def kill(self, run, *ranks):
        """At once; returns when the others go on."""
        before = run.text().count(": resumed, step")
        for pid in [pid for rank, pid in ranks_of(run.process.pid).items() if rank in ranks]:
            os.kill(pid, signal.SIGKILL)
        self.assertTrue(run.wait_for(": resumed, step", before + 1), run.text())

    def flip(self, run, *words):
        done = chaos(self.path / run.name, *words, "--faults", "corrupt")
        self.assertEqual(done.returncode, 0, done.stderr)
        before = self.steps(run)
        while run.is_running() and self.steps(run) < before + 4:  # what flipped last is compared, before somebody else is lost
            time.sleep(0.01)

    def steps(self, run):
        return (self.path / run.name / "metrics.jsonl").read_text().count('"loss"')

    def check_from_memory(self, run, *words):
        self.check(run, *words)
        self.assertNotIn("are lost", run.text())
        self.assertNotIn("none of the workers", run.text())


class Slices(Spread):
    config = SLICES

    def test_killed_workers_are_in_the_memory_of_others(self):
        for sync in ("zero1", "zero3"):
            run = self.start_running(sync, "-n", "4", "--elastic", "1:8", f"parallel.sync={sync}")
            self.kill(run, 0, 3)  # whose mirrors the other two keep
            self.kill(run, 2)
            self.check_from_memory(run)

    def test_one_that_is_killed_comes_back_and_the_next_one_dies(self):
        run = self.start_running("again", "-n", "3", "--elastic", "2:8", "--restarts", "9", "parallel.sync=zero1", "train.precision=f16",
                                 "train.steps=2000")
        for rank in (1, 0):
            self.kill(run, rank)
            self.assertTrue(run.wait_for(": 3 workers", 1 + (rank == 0)), run.text())
        self.check_from_memory(run, "train.precision=f16", "train.steps=2000")

    def test_two_partners_are_lost_and_the_newest_checkpoint_continues(self):
        words = ("parallel.sync=zero3", "checkpoint.every_steps=200")
        run = self.start_running("pair", "-n", "4", "--elastic", "2:8", *words)
        while run.is_running() and not list((self.path / "pair" / "checkpoints").glob("step-*")):
            pass
        self.kill(run, 1, 3)
        self.check(run, *words)
        self.assertRegex(run.text(), r"2 of the 4 parts .* are lost .* continues from step [2-9]00, its newest checkpoint")

    def test_two_partners_and_no_checkpoint_begin_the_run_again(self):
        run = self.start_running("gone", "-n", "4", "--elastic", "2:8", "parallel.sync=zero2", "checkpoint.every_epochs=0")
        for pid in [ranks_of(run.process.pid)[rank] for rank in (0, 2)]:
            os.kill(pid, signal.SIGKILL)
        self.check(run)
        self.assertRegex(run.text(), r"2 of the 4 parts \(0, ...\) of the state after step \d+ are lost with the workers .* starts again from step 0\n")

    def test_bits_that_flip_in_parts_and_mirrors_are_repaired_from_each_other(self):
        """Rank 0, which tells of it, is killed then: the next one has its lines of metrics.jsonl."""
        words = ("train.steps=1800",)
        kinds = (r"step \d+ part \d at rank \d \(.*\) .* from rank \d's mirror",
                 r"step \d+ the mirror of part \d at rank \d \(.*\) .* from rank \d's(\n|$)")
        for sync, seed in (("zero1", 10), ("zero3", 4)):
            run = self.start_running(sync, "-n", "4", "--elastic", "3:4", "comm.chaos=on", "train.verify_every=1", "train.guard_limit=0",
                                     f"parallel.sync={sync}", *words)
            for more in range(4):  # where a flip lands is chance, and so is who sees it first
                self.flip(run, "--seed", seed + more, "--for", "0.6", "--every", "0.1")
                if all(re.search(kind, run.text()) for kind in kinds):
                    break
            self.kill(run, 0)
            self.check_from_memory(run, *words)
            # of parts and mirrors, and of the whole weights that a flip in a gathered copy reached
            told = re.findall(r"(before step .*: repaired from .*)", run.text())
            for kind in kinds:
                self.assertRegex("\n".join(told), kind)
            lines = map(json.loads, (self.path / sync / "metrics.jsonl").read_text().splitlines())
            self.assertEqual([line["text"] for line in lines if line.get("event") == "repair"], told)

    def test_copies_of_which_nobody_knows_which_is_right_count_for_nothing(self):
        """A bit flips between two comparisons, and what comes of it is written on. One that flips where nothing is written
        before the next comparison is found for what it is: then another one flips."""
        riddle = r"differs from the mirror of part \d at rank \d \(.*\), and neither has changed in memory since it was written"
        words = ("train.steps=3000", "checkpoint.every_steps=200")
        run = self.start_running("riddle", "-n", "4", "--elastic", "4:4", "comm.chaos=on", "train.verify_every=50", "train.guard_limit=0",
                                 "parallel.sync=zero3", *words)
        while run.is_running() and not list((self.path / "riddle" / "checkpoints").glob("step-*")):
            pass
        for seed in range(2, 12):
            self.flip(run, "--seed", seed, "--for", "0.2", "--every", "0.15")
            if re.search(riddle, run.text()):
                break
        self.assertEqual((run.end(), self.hash_of(run)), (0, self.weights(words[0])), run.text())
        self.assertRegex(run.text(), riddle)
        self.assertRegex(run.text(), r"count for nothing: the run continues from step \d+00, its newest checkpoint")

    def test_partners_that_are_asked_to_leave_take_turns(self):
        run = self.start_running("leave", "-n", "4", "--elastic", "2:8", "parallel.sync=zero1")
        for pid in [ranks_of(run.process.pid)[rank] for rank in (0, 2)]:
            os.kill(pid, signal.SIGTERM)
        self.check_from_memory(run)
        self.assertEqual(len(re.findall("leaves after step", run.text())), 2, run.text())


class Stages(Spread):
    config = STAGES

    def test_the_mesh_is_laid_out_for_who_is_left(self):
        for name, words, first, then in (
            ("parts", ("parallel.tensor=2", "parallel.pipeline=2"), "data 1 x tensor 2 x pipeline 1", "data 1 x tensor 1 x pipeline 1"),
            ("slices", ("parallel.pipeline=2", "parallel.sync=zero3"), "data 1 x tensor 1 x pipeline 2", "data 1 x tensor 1 x pipeline 1"),
        ):
            run = self.start_running(name, "-n", "4", "--elastic", "1:8", *words)
            self.kill(run, 1)
            self.assertIn(first, run.text())
            self.kill(run, 0)  # one of the three that were left had nothing to do, and takes its place
            self.kill(run, 3)
            self.check_from_memory(run)
            self.assertIn(then, run.text())

    def test_slices_of_tied_weights(self):
        for sync in ("zero1", "zero2", "zero3"):
            run = self.start_running(sync, "-n", "4", "--elastic", "1:8", f"parallel.sync={sync}")
            self.kill(run, 1)
            self.kill(run, 0)
            self.check_from_memory(run)

    def test_a_replacement_takes_the_role(self):
        run = self.start_running("role", "-n", "4", "--elastic", "1:8", "--restarts", "9", "parallel.tensor=2", "parallel.pipeline=2")
        self.kill(run, 2)
        self.assertTrue(run.wait_for(": 4 workers"), run.text())
        self.check_from_memory(run)


if __name__ == "__main__":
    unittest.main(verbosity=2)
