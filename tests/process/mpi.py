#!/usr/bin/env python3
"""comm.engine mpi under the launcher of one MPI: operations, refusals, time limits, training, a rank that is killed.

usage: mpi.py openmpi|mpich PLUGIN RANKS_PROGRAM TRIREME     exit 77: this MPI is not here
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from steps import has_steps

NAME, PLUGIN, RANKS = sys.argv[1:4]
del sys.argv[1:4]
from launched import LIMIT_S, TRIREME  # noqa: E402 (reads and removes the program from sys.argv)
CONFIG = "model: {name: mlp, hidden: [16, 16]}\ndata: {name: synthetic}\ntrain: {batch: 64, epochs: 2, shards: 8}\n"
# Sanitizers: MPI libraries keep what they allocate.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "ASAN_OPTIONS": "detect_leaks=0"}
ORDER = "comm.engine mpi adds in an order of its own: set comm.order=any"


def launcher():
    """The words before `-n`: the launcher's own name first, else a plain mpirun that says it is the one."""
    for name in (f"mpirun.{NAME}", "mpirun"):
        path = shutil.which(name)
        if not path:
            continue
        version = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        if ("Open MPI" in version) == (NAME == "openmpi"):
            return [path, "--allow-run-as-root", "--oversubscribe"] if NAME == "openmpi" else [path]
    return None


class Mpi(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.config = pathlib.Path(self.folder.name, "run.yaml")
        self.config.write_text(CONFIG)

    def tearDown(self):
        self.folder.cleanup()

    def start(self, ranks, *words):
        return subprocess.Popen([*LAUNCHER, "-n", str(ranks), *words], cwd=self.folder.name, env=ENVIRONMENT, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run_ranks(self, ranks, *words):
        process = self.start(ranks, *words)
        try:
            out, err = process.communicate(timeout=200)
        finally:
            process.terminate()  # it takes its ranks along
        return process.returncode, out, err

    def test_every_operation_gives_what_the_host_gives(self):
        for ranks in (2, 4):
            code, out, err = self.run_ranks(ranks, RANKS, "ops", PLUGIN)
            self.assertEqual((code, out.count("ops holds")), (0, ranks), err)

    def test_what_depends_on_the_order_is_refused(self):
        for ranks in (2, 4):
            code, out, err = self.run_ranks(ranks, RANKS, "order", PLUGIN)
            self.assertEqual((code, out.count("order holds")), (0, ranks), err)

    def test_time_limits_and_lengths_are_kept(self):
        for what in ("late", "lengths"):
            for ranks in (2, 4):
                _, out, err = self.run_ranks(ranks, RANKS, what, PLUGIN)
                self.assertEqual(out.count(what + " holds"), ranks, err)

    def test_training_works_and_says_that_it_is_not_reproducible(self):
        for ranks in (2, 4):
            run = f"{self.folder.name}/run{ranks}"
            code, out, err = self.run_ranks(ranks, TRIREME, "train", str(self.config), "comm.engine=mpi", "comm.order=any",
                                            "--out", run)
            self.assertEqual(code, 0, err)
            self.assertRegex(out, r"weights: xxh3 [0-9a-f]{16}")
            info = subprocess.run([TRIREME, "info", run], capture_output=True, text=True, env=ENVIRONMENT).stdout
            self.assertIn("not reproducible (comm.engine mpi adds in an order of its own)", info)

    def test_training_in_canonical_order_is_refused(self):
        code, _, err = self.run_ranks(2, TRIREME, "train", str(self.config), "comm.engine=mpi", "--out", "run")
        self.assertNotEqual(code, 0)
        self.assertIn("error: step 0: " + ORDER, err.splitlines())

    def test_bench_names_the_engine_and_finds_nothing_wrong(self):
        code, out, err = self.run_ranks(2, TRIREME, "bench", "all_gather", "--engine", "mpi", "--sizes", "1k", "--json")
        self.assertEqual(code, 0, err)
        line = json.loads(out)
        self.assertEqual((line["engine"], line["algorithm"], line["wrong"]), ("mpi", "mpi", 0))

    def test_a_missing_plug_in_is_one_line(self):
        code, _, err = self.run_ranks(2, TRIREME, "bench", "barrier", "--engine", "mpi", "--json")
        self.assertEqual(code, 0, err)
        code, _, err = self.run_ranks(2, RANKS, "ops", "/nowhere/plugin.so")
        self.assertNotEqual(code, 0)
        lines = {line for line in err.splitlines() if line.startswith("error:")}
        self.assertEqual(len(lines), 1, err)
        self.assertIn("cannot load the plug-in: /nowhere/plugin.so", lines.pop())

    def test_a_job_of_another_launcher_is_refused(self):
        process = subprocess.run([TRIREME, "bench", "barrier", "-n", "2", "--engine", "mpi"], capture_output=True, text=True,
                                 env=ENVIRONMENT, timeout=60)
        self.assertEqual(process.returncode, 2, process.stderr)
        self.assertRegex(process.stderr, "error: .*want a job that mpirun started, .*; this one was started by trireme")
        process = subprocess.run([TRIREME, "launch", "-n", "2", "--", RANKS, "ops", PLUGIN], capture_output=True, text=True,
                                 env=ENVIRONMENT, timeout=60)
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertRegex(process.stderr, r"this process is rank 0 of 1 there and rank \d of 2 in the job")

    def test_a_killed_rank_ends_the_job(self):
        process = self.start(4, TRIREME, "train", str(self.config), "comm.engine=mpi", "comm.order=any", "train.epochs=1000000",
                             "--out", "run")
        deadline = time.time() + LIMIT_S
        while not has_steps(pathlib.Path(self.folder.name, "run")) and time.time() < deadline:
            time.sleep(0.05)
        victims = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if os.readlink(f"/proc/{pid}/exe") == TRIREME and (
                        b"OMPI_COMM_WORLD_RANK=2" in environ or b"PMI_RANK=2" in environ):
                    if os.readlink(f"/proc/{pid}/cwd") == os.path.realpath(self.folder.name):
                        victims.append(int(pid))
            except OSError:
                pass
        self.assertEqual(len(victims), 1)
        os.kill(victims[0], signal.SIGKILL)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertNotEqual(process.returncode, 0)
        # The launcher tells, and so does every rank that it has not ended first: all of them the same.
        errors = [line for line in err.splitlines() if line.startswith("error:")]
        for line in errors:
            self.assertRegex(line, r"^error: (step \d+|while looking who is slow): .*rank 2 is gone")
        self.assertTrue(errors or re.search("signal 9|EXIT CODE: 9", out + err), out + err)


if __name__ == "__main__":
    LAUNCHER = launcher()
    if not PLUGIN or not LAUNCHER:
        print(f"skipped: {'no plug-in was built' if LAUNCHER else 'no launcher'} for {NAME} (tools/deps mpi)")
        sys.exit(77)
    unittest.main(verbosity=2)
