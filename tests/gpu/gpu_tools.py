#!/usr/bin/env python3
"""tools/gpu_bundle and tools/gpu_check, rehearsed on the emulator: usage: gpu_tools.py TRIREME"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve().parent
TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


def run(*command, folder=None, **env):
    return subprocess.run([str(word) for word in command], cwd=folder, env={**os.environ, **env}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=200)


class Tools(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def test_a_bundle_checks_the_machine_to_which_it_was_copied(self):
        bundle = self.folder / "bundle"
        made = run(TOOLS / "gpu_bundle", "--build", BUILD, "--most", "256", bundle)
        self.assertEqual(made.returncode, 0, made.stdout)
        done = run("tools/gpu_check", "--fake", "facts", "1", "gemm", "training", "nccl", "faults", folder=bundle, FAKE_NVML="ecc=2")
        self.assertEqual(done.returncode, 0, done.stdout)
        rows = [line.split(" | ") for line in (bundle / "gpu_check.md").read_text().splitlines()[4:]]
        self.assertEqual([row[1:3] for row in rows], [["facts", "passed"], ["ceilings", "passed"], ["gemm", "passed"],
                                                      ["training", "passed"], ["nccl", "passed"], ["faults", "passed"]])
        self.assertIn("Emulated card", rows[0][4])
        self.assertIn("cublasLt 13.1.0 32^3", rows[1][4])
        self.assertIn("6 products, 0 by our own kernels: small output 16x32x24 x8: 1.0.1.0.0.0.0.0.0 (0 refused)", rows[2][4])
        self.assertIn("12 of 12 refusals are those of the fake", rows[2][4])
        for row in (rows[3], rows[5]):
            self.assertIn("0 with other weights", row[4])
        self.assertIn("NCCL 2.28.9, 1 rank: the canonical order has the bits of the host's sum, any order is exact", rows[4][4])
        self.assertIn("NCCL 2.28.9, 2 ranks: the canonical order", rows[4][4])
        self.assertIn("ranks 0 and 1 are both on card GPU-face0000", rows[4][4])
        self.assertIn("412 W, 61 degrees, 1755 MHz, 2 uncorrected memory errors; doctor: gpu memory errors: card 0: 2 uncorrected", rows[0][4])

    def test_a_section_that_fails_says_why_and_the_others_run(self):
        done = run(TOOLS / "gpu_check", "--fake", "--build", BUILD, "0", "3", folder=self.folder, FAKE_CUDA="no_card")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("| 0 | facts | failed | 0 | the driver finds no NVIDIA card |", (self.folder / "gpu_check.md").read_text())
        self.assertIn("there is no cublasLt", done.stdout)

    def test_pytorch_is_compared_or_reported_as_not_available(self):
        done = run(TOOLS / "gpu_check", "--fake", "--build", BUILD, "pytorch", folder=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex((self.folder / "gpu_check.md").read_text(),
                         r"\| 7 \| pytorch \| (passed|not available) \| \d+ \| tiny trireme [\d,]+/s; tiny eager ")

    def test_bad_words_and_bundles_that_are_too_large_are_refused(self):
        done = run(TOOLS / "gpu_check", "--build", BUILD, "speed", folder=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("section: want 0 to 11 or facts", done.stdout)
        made = run(TOOLS / "gpu_bundle", "--build", BUILD, "--most", "1", self.folder / "bundle")
        self.assertEqual(made.returncode, 1)
        self.assertIn("at most 1", made.stdout)
        self.assertFalse((self.folder / "bundle").exists())


if __name__ == "__main__":
    unittest.main()
