#!/usr/bin/env python3
"""Models that the CPU trained, evaluated, asked and continued on the fake device and on the emulated card, and texts of a
model of Hugging Face: usage: trained.py TRIREME"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TRIREME = str(pathlib.Path(sys.argv.pop(1)).resolve())
GPT = pathlib.Path(__file__).resolve().parents[1] / "unit/generate/fixtures/gpt2"
MODELS = {
    "mlp": ["model.name=mlp", "model.hidden=[16]", "data.synthetic_width=6"],
    "cnn": ["model.layers=[reshape: [6, 6, 1], conv2d: {out: 4, kernel: 3, pad: 1}, batch_norm, relu, max_pool: 2, flatten, linear: classes]",
            "model.sync_batch_norm=false", "data.synthetic_width=36"],
}
DATA = ["data.name=synthetic", "data.synthetic_count=60", "data.classes=3", "train.batch=20", "train.epochs=1"]


class Trained(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_on(self, *words, given=None):
        done = subprocess.run([TRIREME, *map(str, words)], cwd=self.folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, input=given,
                              capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def train(self, name):
        (self.folder / "c.yaml").write_text("{}\n")
        self.run_on("train", "c.yaml", "--out", name, *MODELS[name], *DATA)

    def evaluate(self, name, device):
        found = json.loads(self.run_on("eval", name, "--json", f"train.device={device}")[0])
        del found["samples_per_s"]
        return found

    def ask(self, name, device):
        lines = self.run_on("predict", name, "--top", "3", f"train.device={device}", given='{"index": 3}\n{"index": 5}\n')[0]
        return [json.loads(line) for line in lines.splitlines()]

    def test_what_the_cpu_trained_is_evaluated_and_asked(self):
        for name in MODELS:
            self.train(name)
            cpu, fake, cuda = (self.evaluate(name, device) for device in ("cpu", "fake", "cuda"))
            self.assertEqual(fake, cpu)
            self.assertAlmostEqual(cuda.pop("loss"), cpu.pop("loss"), places=5)
            self.assertEqual(cuda, cpu)  # the weights too
            cpu, fake, cuda = (self.ask(name, device) for device in ("cpu", "fake", "cuda"))
            self.assertEqual(fake, cpu)
            for got, want in zip(cuda, cpu, strict=True):
                self.assertEqual([row["class"] for row in got["top"]], [row["class"] for row in want["top"]])
                self.assertAlmostEqual(got["probability"], want["probability"], places=5)

    def test_a_run_that_continues_on_another_device_warns(self):
        self.train("mlp")
        said = self.run_on("train", "--resume", "mlp", "train.epochs=2", "train.device=cuda")
        self.assertIn("was made with other kernels", said[1])
        self.assertIn("cuda emulated, compute capability 9.0", said[1])
        self.assertIn("not reproducible", "".join(said))

    def test_texts_are_those_of_the_cpu(self):
        for words in (["--temperature", "0", "--max-tokens", "10"], ["--seed", "3", "--top-k", "5", "--max-tokens", "6", "--dtype", "bf16"]):
            texts = [self.run_on("generate", GPT, "--prompt", "Once", "--device", device, *words)[0] for device in ("cpu", "fake", "cuda")]
            self.assertEqual(texts[0], texts[1])
            self.assertEqual(texts[0], texts[2])
            self.assertGreater(len(texts[0]), 5)

    def test_a_batch_has_the_texts_of_its_prompts_alone(self):
        prompts = "".join(json.dumps({"prompt": prompt, "max_tokens": 4, "seed": seed}) + "\n"
                          for seed, prompt in enumerate(["Once", "a", "the quick brown", "0123456789"]))
        batch = [self.run_on("generate", GPT, "--batch", "-", "--at-once", count, "--device", "cuda", given=prompts)[0] for count in (1, 3)]
        self.assertEqual(batch[0], batch[1])
        self.assertEqual(len(batch[0].splitlines()), 4)
        self.assertNotIn("error", batch[0])


if __name__ == "__main__":
    unittest.main()
