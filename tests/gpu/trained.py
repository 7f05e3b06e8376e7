#!/usr/bin/env python3
"""Models that the CPU trained, evaluated, asked and continued on the fake device and on the emulated card, and texts of a
model of Hugging Face: usage: trained.py TRIREME"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

TRIREME = str(pathlib.Path(sys.argv.pop(1)).resolve())
TABLE = pathlib.Path(__file__).resolve().with_name("expected") / "train.txt"
GPT = pathlib.Path(__file__).resolve().parents[1] / "unit/generate/fixtures/gpt2"
MODELS = {
    "mlp": ["model.name=mlp", "model.hidden=[16]", "data.synthetic_width=6"],
    "cnn": ["model.layers=[reshape: [6, 6, 1], conv2d: {out: 4, kernel: 3, pad: 1}, batch_norm, relu, max_pool: 2, flatten, linear: classes]",
            "model.sync_batch_norm=false", "data.synthetic_width=36"],
    "gpt2": ["model.name=gpt2", "model.n_layer=1", "model.n_head=2", "model.n_embd=16", "data.synthetic_tokens=true", "data.synthetic_width=8"],
}
DATA = ["data.name=synthetic", "data.synthetic_count=60", "data.classes=3", "train.batch=20", "train.epochs=1"]


class Trained(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_on(self, *words, given=None):
        done = subprocess.run([TRIREME, *map(str, words)], cwd=self.folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, input=given,
                              capture_output=True, text=True, errors="replace", timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def train(self, name, *words):
        """The output."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        (self.folder / "c.yaml").write_text("{}\n")
        return self.run_on("train", "c.yaml", "--out", "run", *MODELS.get(name, []), *DATA, *words)[0]

    def evaluate(self, device):
        found = json.loads(self.run_on("eval", "run", "--json", f"train.device={device}")[0])
        del found["samples_per_s"]
        return found

    def ask(self, device):
        lines = self.run_on("predict", "run", "--top", "3", f"train.device={device}", given='{"index": 3}\n{"index": 5}\n')[0]
        return [json.loads(line) for line in lines.splitlines()]

    def test_what_the_cpu_trained_is_evaluated_and_asked(self):
        for name, precision in ((name, precision) for name in MODELS for precision in ("f32", "bf16")):
            with self.subTest(model=name, precision=precision):
                self.train(name, f"train.precision={precision}")
                places = 5 if precision == "f32" else 2
                cpu, fake, cuda = (self.evaluate(device) for device in ("cpu", "fake", "cuda"))
                self.assertEqual(fake, cpu)
                for key in {"loss", "perplexity"} & cpu.keys():
                    self.assertAlmostEqual(cuda.pop(key), cpu.pop(key), places=places - (key == "perplexity"))
                self.assertEqual(cuda, cpu)  # the weights too
                if name == "gpt2":  # predict has no use of it
                    continue
                cpu, fake, cuda = (self.ask(device) for device in ("cpu", "fake", "cuda"))
                self.assertEqual(fake, cpu)
                for got, want in zip(cuda, cpu, strict=True):
                    self.assertEqual([row["class"] for row in got["top"]], [row["class"] for row in want["top"]])
                    self.assertAlmostEqual(got["probability"], want["probability"], places=places)

    def kernels_of(self, name):
        """What the card ran in a step of a block of the table of golden_cuda."""
        block = TABLE.read_text().split(f"\n{name} ")[1].split("\n\n")[0]
        options = [word for line in block.splitlines() if line.startswith("    : ") for word in shlex.split(line)[1:]]
        (self.folder / "c.yaml").write_text("{}\n")
        self.run_on("train", "c.yaml", "--out", name, *options, "train.steps=2", "monitor.trace=trace.json:1-1", "train.device=cuda")
        return {kernel["name"] for kernel in json.loads(self.run_on("trace", "summarize", "trace.json", "--json")[0])["kernels"]}

    def test_hashes_of_training_are_of_attention_by_tensor_cores_and_of_large_products(self):
        attention = {"attention", "attention_dq", "attention_dkv"}
        self.assertLessEqual({f"{kernel}_64" for kernel in attention}, self.kernels_of("gpt2_f16"))
        found = self.kernels_of("gpt2_bf16")
        self.assertLessEqual({f"{kernel}_drop_64" for kernel in attention}, found)
        self.assertFalse(attention & found)
        self.assertIn("gemm_wide", self.kernels_of("mlp_wide_bf16"))

    def test_a_run_that_continues_on_another_device_warns(self):
        for device, other, kernels in (("cpu", "cuda", r"with other kernels .* than these \(cuda emulated, compute capability 9.0"),
                                       ("cuda", "cpu", r"with other kernels \(cuda emulated, compute capability 9.0")):
            self.train("mlp", f"train.device={device}")
            before = self.evaluate(device)
            self.assertEqual(self.evaluate(other)["weights"], before["weights"])
            said = self.run_on("train", "--resume", "run", "train.epochs=3", f"train.device={other}")
            self.assertRegex(said[1], f"was made {kernels}")
            self.assertIn("not reproducible", "".join(said))
            after = self.evaluate(other)
            self.assertLess(after["loss"], before["loss"])

    def test_texts_during_training_are_those_of_the_weights_and_change_none(self):
        data = [f"model.from={GPT}", "data.synthetic_tokens=true", "data.synthetic_width=8", "data.classes=99", "train.device=cuda"]
        sampled = ["train.sample_every=2", "train.sample_tokens=6", "train.sample_prompt=On"]
        weights, texts = [], []
        for words in ([], sampled, [*sampled, "parallel.sync=zero3", "-n", "2"]):
            weights.append(re.search("weights: .*", self.train("", *data, *words))[0])
            lines = map(json.loads, (self.folder / "run/metrics.jsonl").read_text().splitlines())
            texts.append([line["sample"] for line in lines if "sample" in line])
        self.assertEqual(weights, weights[:1] * 3)
        none, one, spread = texts
        self.assertEqual((none, spread), ([], one))
        self.assertEqual(len(one), 2)  # after steps 2 and 3
        shutil.copy(GPT / "tokenizer.json", self.folder / "run")
        self.assertEqual(self.run_on("generate", "run", "--prompt", "On", "--device", "cuda", "--temperature", "0.8", "--top-k", "200", "--seed", "1",
                                     "--max-tokens", "6")[0].rstrip("\n"), one[-1])

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
