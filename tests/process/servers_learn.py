#!/usr/bin/env python3
"""A GPT and a convolutional network on parameter servers under each consistency: bsp has the weights of one process, and the others, whose bits
depend on who comes first, learn what one process learns.

usage: servers_learn.py TRIREME
"""
import json
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import unittest

from launched import TRIREME

GPT = """
model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 32, resid_pdrop: 0.1}
data: {path: words.txt, format: tokens, tokenizer: char, context: 32, windows: random, test: 0.1}
train: {batch: 16, shards: 4, epochs: 100, steps: 160, eval_every: 0, eval_every_steps: 0, seed: 3}
optim: {name: adamw, lr: 0.01, clip_norm: 1}
ps: {block_kib: 16}
"""
CNN = """
model:
  layers:
    - reshape: [8, 8, 1]
    - conv2d: {out: 32, kernel: 3, pad: 1}
    - batch_norm
    - relu
    - max_pool: 2
    - flatten
    - linear: classes
data: {name: synthetic, synthetic_count: 1600, synthetic_width: 64}
train: {batch: 64, shards: 4, epochs: 100, steps: 160, eval_every: 0, eval_every_steps: 0, seed: 3}
optim: {name: adamw, lr: 0.01}
ps: {block_kib: 16}
"""
STALE = {
    "ssp": ["ps.consistency=ssp", "ps.staleness=2"],
    "ssp by demand": ["ps.consistency=ssp", "ps.staleness=2", "ps.schedule=dynamic"],
    "async": ["ps.consistency=async"],
    "async by demand": ["ps.consistency=async", "ps.schedule=dynamic"],
    "async, compensated": ["ps.consistency=async", "ps.delay_compensation=0.04"],
}
LEARNED = 0.75 # of the way that one process's loss has gone down


class Learns(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        draw = random.Random(5)
        words = ["tri", "reme", "oar", "bench", "stroke", "beat", "wave", "harbour"]
        (self.path / "words.txt").write_text("".join(draw.choice(words) + draw.choice(" \n") for _ in range(4000)))

    def tearDown(self):
        self.folder.cleanup()

    def train(self, config, name, *words):
        """The hash of the weights, and the losses at the beginning and at the end."""
        (self.path / "run.yaml").write_text(config)
        steps = int(re.search(r"steps: (\d+)", config).group(1))
        for attempt in range(4):  # by demand one of two may make few of the steps, or, where it begins late, one: then of more
            folder, more = self.path / f"{name}-{attempt}", ("train.epochs=100000", f"train.steps={steps * 4 ** attempt}")
            done = subprocess.run([TRIREME, "train", "run.yaml", "--out", folder, *words, *more], cwd=self.path, capture_output=True, text=True,
                                  timeout=240)
            text = done.stdout + done.stderr
            self.assertEqual(done.returncode, 0, text)
            losses = [line["loss"] for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()) if "loss" in line]
            if len(losses) > 30:
                break
        self.assertGreater(len(losses), 30, text)
        return re.search(r"weights: xxh3 (\w+)", text).group(1), statistics.mean(losses[:5]), statistics.mean(losses[-10:])

    def learns(self, config):
        weights, first, last = self.train(config, "alone")
        self.assertLess(last, 0.7 * first)
        self.assertEqual(self.train(config, "bsp", "-n", "2", "--servers", "2")[0], weights)
        for number, (name, words) in enumerate(STALE.items()):
            with self.subTest(name):
                other, _, reached = self.train(config, f"stale-{number}", "-n", "2", "--servers", "2", *words)
                self.assertLess(reached, first - LEARNED * (first - last))
                self.assertNotEqual(other, weights) # else nothing was stale, and this run would show nothing

    def test_a_gpt_learns_under_each_consistency(self):
        self.learns(GPT)

    def test_a_convolutional_network_learns_under_each_consistency(self):
        self.learns(CNN)


if __name__ == "__main__":
    unittest.main()
