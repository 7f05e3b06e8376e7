# SPDX-License-Identifier: Apache-2.0
"""Runs a file of tests as 2 and as 3 ranks: every rank runs the same tests in the same order.

A test file ends with `ranks.main()`. Without RANK in the environment it starts itself once per rank; what a failing rank
printed is printed.
"""
import os
import subprocess
import sys
import unittest
from datetime import timedelta

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tests/process"))
from ports import free_port  # noqa: E402

LIMIT_S = 120


def environment(rank, world, port):
    return dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port), OMP_NUM_THREADS="1", TRIREME_TEST_RANKS="1")


def start(command, world):
    """Starts the command once per rank; (exit status, output) of each."""
    port = free_port()
    processes = [subprocess.Popen(command, env=environment(rank, world, port), text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT) for rank in range(world)]
    results = []
    for process in processes:
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0] + f"\n(killed after {LIMIT_S} s)"
        results.append((process.returncode, output))
    return results


def main(worlds=(2, 3), init=True):
    if "TRIREME_TEST_RANKS" not in os.environ:
        failed = False
        for world in worlds:
            for rank, (status, output) in enumerate(start([sys.executable, *sys.argv], world)):
                if status != 0:
                    failed = True
                    print(f"--- {sys.argv[0]}: rank {rank} of {world} ended with {status}:\n{output}")
        print(f"{os.path.basename(sys.argv[0])}: {'failed' if failed else 'ok'} with {worlds} ranks")
        sys.exit(failed)
    import torch.distributed as dist

    import trireme.torch  # noqa: F401
    if init:
        dist.init_process_group("trireme", timeout=timedelta(seconds=30))
    result = unittest.main(module="__main__", exit=False, argv=sys.argv[:1], failfast=True).result
    if init:
        dist.destroy_process_group()
    sys.exit(not result.wasSuccessful())
