#!/usr/bin/env python3
"""Training with matrix products by the fake cublasLt, and without: what a run says, and what ranks and resumed runs refuse.

usage: products.py TRIREME; LD_LIBRARY_PATH has the fake libcuda.so.1 and cublasLt.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TRIREME = str(pathlib.Path(sys.argv.pop(1)).resolve())
MLP = ["model.name=mlp", "model.hidden=[16]", "data.name=synthetic", "data.synthetic_count=32", "train.batch=16", "train.epochs=2",
       "train.threads=1", "train.eval_every=0"]


class Products(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        pathlib.Path(self.folder, "run.yaml").write_text("{}\n")

    def train(self, *words, faults="", cuda="", code=0):
        done = subprocess.run([TRIREME, "train", *words, "train.device=cuda"], cwd=self.folder, text=True, timeout=60,
                              env={**os.environ, "FAKE_CUBLASLT": faults, "FAKE_CUDA": cuda, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def test_a_run_says_who_multiplies_and_resumed_by_another_library_it_warns(self):
        said = self.train("run.yaml", "--out", "run", *MLP, "train.steps=2", faults="batch")
        self.assertIn("matrix products: 5 by cublasLt 13.1.0, 0 by our own kernels; 5 algorithms are not used", said)
        self.assertNotIn("other kernels", self.train("--resume", "run", "-n", "2", "parallel.pipeline=2", "train.steps=3"))
        said = self.train("--resume", "run", "parallel.pipeline=1", "train.steps=0", faults="old")
        self.assertRegex(said, r"made with other kernels \(cuda emulated, compute capability 9.0, driver for CUDA 13, kernels [0-9a-f]{8}, "
                               r"cublasLt 13.1.0 on 132 SMs, algorithms [0-9a-f]{8}\) than these \(.*cublasLt 12.9.1 on 132 SMs, ")

    def test_algorithms_that_all_fail_leave_our_own_kernels(self):
        said = self.train("run.yaml", *MLP, faults="tail,only")
        self.assertIn("matrix products: 0 by cublasLt 13.1.0, 5 by our own kernels; 5 algorithms are not used", said)
        self.assertEqual(said.count("one of the two is wrong"), 5, said)
        self.assertRegex(said, r"matrix product 2 x 16, k 32, of f32 in f32: want the exact sums of our own kernel, got "
                               r"others from the 1 algorithm of cublasLt 13.1.0: one of the two is wrong")
        self.assertNotIn("is wrong", self.train("run.yaml", *MLP, faults="refuses,only"))
        self.assertIn("matrix products: by our own kernels: cublasLt 13.1.0 cannot start: error 1",
                      self.train("run.yaml", *MLP, faults="no_start"))

    def test_what_the_library_has_allocated_is_not_free(self):
        for words, free in ([["train.kernels=cuda_own"], "40.0"], [[], "8.0"]):
            said = self.train("run.yaml", *MLP, "model.hidden=[2048,2048]", *words, cuda="memory=40", code=1)
            self.assertIn(f"error: cuda:0 has {free} MiB free, and this run needs", said)

    def test_ranks_of_two_builds_are_refused_and_a_run_that_a_newer_build_resumes_is_not_reproducible(self):
        own = "train.kernels=cuda_own"
        said = self.train("run.yaml", "-n", "2", *MLP, own, cuda="other_kernels=1", code=1)
        self.assertRegex(said, r"error: rank 1 has another card, build or library than rank 0 \(rank \d: cuda emulated, compute capability 9.0, "
                               r"driver for CUDA 13, kernels [0-9a-f]{8}\)")
        self.train("run.yaml", "--out", "run", *MLP, own, "train.steps=2")
        self.train("run.yaml", "--out", "next", *MLP, own, "train.steps=2", cuda="next_driver")
        said = self.train("--resume", "next", "train.steps=0")
        self.assertRegex(said, r"made with other kernels \(.*, driver for CUDA 14, kernels ([0-9a-f]{8})\) than these \(.*, driver for CUDA 13, kernels \1\)")
        said = self.train("--resume", "run", "train.steps=0", cuda="other_kernels")
        self.assertRegex(said, r"made with other kernels \(cuda emulated, compute capability 9.0, driver for CUDA 13, kernels (?!0{8})[0-9a-f]{8}\) than these "
                               r"\(cuda emulated, compute capability 9.0, driver for CUDA 13, kernels 00000000\): the run is not reproducible")
        self.assertIn("not reproducible (resumed with other kernels)", said)

    def test_ranks_of_two_kinds_are_refused(self):
        said = self.train("run.yaml", "-n", "2", *MLP, faults="old1", code=1)
        self.assertIn("error: rank 1 has another card, build or library than rank 0", said)
        said = self.train("run.yaml", "-n", "2", *MLP, faults="other1", code=1)
        self.assertIn("error: two ranks multiply a product of the model by different algorithms of cublasLt 13.1.0: want cards "
                      "of one kind, or train.kernels=cuda_own", said)
        said = self.train("run.yaml", "-n", "2", *MLP, "train.kernels=cuda_own", faults="old1")
        self.assertIn("matrix products: by our own kernels\n", said)


if __name__ == "__main__":
    unittest.main()
