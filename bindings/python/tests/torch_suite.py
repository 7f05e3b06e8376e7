# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests of torch.distributed (DistributedTest, part of its wheel) on CPU, with Gloo and with Trireme.

    python tests/torch_suite.py [--backends gloo,trireme] [--world 3] [--only REGEX] [--skip REGEX] [--limit SECONDS]

Prints the tests that end differently, and how many passed, failed and were skipped with each backend. It takes minutes,
so it is not one of the tests that ctest runs. Needs PyTorch 2 from PyPI, and its packages expecttest and numpy.

The ranks stay for all tests; after a test that fails they start anew, and it is run once more.
"""
import argparse
import collections
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import timedelta

import ranks


def load_suite():
    from torch.testing._internal.distributed import distributed_test as suite
    return suite, type("Suite", (suite.TestDistBackend, suite.DistributedTest._DistTestBase), {})


def run_test(suite, case, rank, world, backend):
    """The outcome of one test in this rank: passed, or skipped."""
    import unittest

    import torch.distributed as dist
    from torch.testing._internal.common_utils import set_rng_seed
    set_rng_seed(1234)  # as the setUp of PyTorch's tests: ranks draw the same numbers
    limit = suite.CUSTOM_PG_TIMEOUT.get(case._testMethodName, suite.default_pg_timeout)
    dist.init_process_group(backend, init_method=case.init_method, world_size=world, rank=rank,
                            timeout=timedelta(seconds=limit))
    try:
        case._barrier()
        getattr(case, case._testMethodName)()
        case._barrier()
        outcome = "passed"
    except (unittest.SkipTest, SystemExit):
        outcome = "skipped"
    if dist.is_initialized():
        dist.destroy_process_group()
    return outcome


def work(rank, world, backend, answers):
    """A rank: runs the tests whose names come on stdin."""
    import torch
    if backend == "trireme":
        import trireme.torch  # noqa: F401
    torch.set_num_threads(1)
    suite, suite_class = load_suite()
    for line in sys.stdin:
        name, path = json.loads(line)
        case = suite_class(name)
        case.rank, case.file_name = rank, path
        try:
            answer = [run_test(suite, case, rank, world, backend), ""]
        except BaseException:
            answer = ["failed", traceback.format_exc()]
        print(json.dumps(answer), file=answers, flush=True)


class Ranks:
    """The processes of one backend."""

    def __init__(self, backend, world):
        self.folder = tempfile.mkdtemp(prefix="torch_suite.")
        for name in ("barrier", "test_dir", "init_dir"):
            os.mkdir(os.path.join(self.folder, name))
        self.tests = 0
        port = str(ranks.free_port())
        self.log = open(os.path.join(self.folder, "log"), "w+")
        self.processes = []
        for rank in range(world):
            environment = dict(os.environ, BACKEND=backend, WORLD_SIZE=str(world), TEMP_DIR=self.folder, OMP_NUM_THREADS="1",
                               CUDA_VISIBLE_DEVICES="", SUITE_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                               RANK=str(rank))
            self.processes.append(subprocess.Popen([sys.executable, "-W", "ignore", __file__], env=environment, text=True,
                                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log))

    def run(self, name, limit):
        """Outcome, text."""
        self.tests += 1
        for process in self.processes:
            print(json.dumps([name, os.path.join(self.folder, f"meet.{self.tests}")]), file=process.stdin, flush=True)
        deadline, answers = time.time() + limit, []
        for process in self.processes:
            ready, _, _ = select.select([process.stdout], [], [], max(deadline - time.time(), 0.1))
            line = process.stdout.readline() if ready else ""
            answers.append(json.loads(line) if line else ["failed", f"no answer within {limit} s" if not ready else "the process died"])
        outcomes = {outcome for outcome, _ in answers}
        if "failed" in outcomes:
            texts = [text for _, text in answers if text]
            return "failed", max(texts, key=lambda text: "Error" in text)
        return "passed" if "passed" in outcomes else "skipped", ""

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def run_backend(backend, names, world, limit):
    outcomes, ranks = {}, None
    for name in names:
        for _ in range(2):
            fresh = ranks is None
            ranks = ranks or Ranks(backend, world)
            outcome, text = ranks.run(name, limit + (120 if fresh else 0))  # they import torch first
            if outcome == "failed":
                ranks.end()
                ranks = None
            if outcome != "failed" or fresh:
                break
        outcomes[name] = outcome
        if outcome == "failed":
            reasons = re.findall(r"^\w[\w.]*(?:Error|Exception|Interrupt)\b.*", text, re.M) or [text]
            print(f"{backend}: {name}: {reasons[-1][:300]}", flush=True)
    if ranks:
        ranks.end()
    return outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="gloo,trireme")
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="cuda|nccl|gpu", help="tests to leave out (default: those that want a GPU)")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a test")
    args = parser.parse_args()
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(args.world), TEMP_DIR=tempfile.gettempdir())
    try:
        _, suite_class = load_suite()
    except ImportError as error:
        sys.exit(f"want PyTorch 2 with its tests (pip install torch expecttest numpy), got: {error}")
    names = sorted(name for name in dir(suite_class) if name.startswith("test_") and re.search(args.only, name)
                   and not (args.skip and re.search(args.skip, name)))
    backends = args.backends.split(",")
    outcomes = {backend: run_backend(backend, names, args.world, args.limit) for backend in backends}
    for name in names:
        if len({outcomes[backend][name] for backend in backends}) > 1:
            print(name, *(f"{backend}: {outcomes[backend][name]}" for backend in backends), sep="  ")
    for backend in backends:
        count = collections.Counter(outcomes[backend].values())
        print(f"{backend}: {count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    sys.exit(any(outcome == "failed" for outcome in outcomes[backends[-1]].values()))


if __name__ == "__main__":
    if "SUITE_RANK" not in os.environ:
        main()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # tests print
    work(int(os.environ["SUITE_RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["BACKEND"], answers)
