# SPDX-License-Identifier: Apache-2.0
"""Runs a file of tests as 3 ranks, with `make test-all` as 2 too: every rank runs the same tests in the same order.

A test file ends with `ranks.main()`. Without RANK in the environment it starts itself once per rank; what a failing rank
printed is printed. Ranks are forks of a process that has imported torch, which takes longer than most tests.
"""
import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tests/process"))
from ports import free_port  # noqa: E402

LIMIT_S = 120
WORLDS = (2, 3) if os.environ.get("TRIREME_TEST_ALL") else (3,)
forks = None  # the process whose forks the ranks are


def environment(rank, world, port):
    return dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port), OMP_NUM_THREADS="1", TRIREME_TEST_RANKS="1")


def start(words, world):
    """Runs a Python program once per rank; (exit status, output) of each."""
    global forks
    if not forks:
        forks = subprocess.Popen([sys.executable, os.path.abspath(__file__)], env=dict(os.environ, OMP_NUM_THREADS="1"), text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(forks.communicate)
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        jobs = [{"words": words, "environment": environment(rank, world, port), "output": f"{folder}/{rank}"} for rank in range(world)]
        forks.stdin.write(json.dumps(jobs) + "\n")
        forks.stdin.flush()
        statuses = json.loads(forks.stdout.readline())
        return [(status, open(job["output"]).read()) for status, job in zip(statuses, jobs)]


def fork_run(jobs):
    """The exit status of each; in a child: None, and it is to run `sys.argv`."""
    pids = []
    for job in jobs:
        pid = os.fork()
        if pid == 0:
            out = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            for to in (1, 2):
                os.dup2(out, to)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.environ.clear()
            os.environ.update(job["environment"])
            sys.argv = job["words"]
            return None
        pids.append(pid)
    until, statuses = time.monotonic() + LIMIT_S, {}
    while len(statuses) < len(pids):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid > 0:
            statuses[pid] = os.waitstatus_to_exitcode(status)
            continue
        if time.monotonic() > until:
            until = float("inf")
            for late, job in zip(pids, jobs):
                if late not in statuses:
                    os.kill(late, signal.SIGKILL)
                    with open(job["output"], "a") as output:
                        output.write(f"(killed after {LIMIT_S} s)\n")
        time.sleep(0.002)
    return [statuses[pid] for pid in pids]


def main(worlds=WORLDS, init=True):
    if "TRIREME_TEST_RANKS" not in os.environ:
        failed = False
        for world in worlds:
            for rank, (status, output) in enumerate(start(sys.argv, world)):
                if status != 0:
                    failed = True
                    print(f"--- {sys.argv[0]}: rank {rank} of {world} ended with {status}:\n{output}")
        print(f"{os.path.basename(sys.argv[0])}: {'failed' if failed else 'ok'} with {worlds} ranks")
        sys.exit(failed)
    import torch.distributed as dist

    import trireme.torch  # noqa: F401
    if init:
        dist.init_process_group("trireme", timeout=timedelta(seconds=100))
    result = unittest.main(module="__main__", exit=False, argv=sys.argv[:1], failfast=True).result
    if init:
        dist.destroy_process_group()
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    import trireme.torch

    program = None
    for line in sys.stdin:
        ended = fork_run(json.loads(line))
        if ended is None:
            program = sys.argv[0]
            break
        print(json.dumps(ended), flush=True)
    if program:
        trireme.torch._PID = os.getpid()  # a rank of its own, which leaves at its end
        sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
        __file__ = program
        exec(compile(open(program).read(), program, "exec"))
