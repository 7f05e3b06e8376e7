# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends the wait for ranks that do not come, whichever way they meet, and leaves an exception as in any Python program."""
import os
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

import ranks

LIMIT_S = 120
WAYS = {
    "env": 'dist.init_process_group("trireme")',
    "trireme": 'dist.init_process_group("trireme", init_method="trireme://")',
    "store": 'dist.init_process_group("trireme", store=dist.FileStore(sys.argv[1], 2), rank=int(os.environ["RANK"]), world_size=2)',
}
PROGRAM = """
import os, sys, torch.distributed as dist, trireme.torch
print("joins", flush=True)
try:
    {way}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
"""


class Joining(unittest.TestCase):
    def interrupt(self, way, rank):
        path = f"/tmp/trireme-join-{os.getpid()}-{way}-{rank}"
        environment = dict(ranks.environment(rank, 2, ranks.free_port()))
        environment.pop("LOCAL_RANK")
        open(path, "w").close()  # until it is there torch's FileStore waits by itself
        process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", PROGRAM.format(way=WAYS[way]), path], env=environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a job of a shell in the background ignores it
        try:
            joins = process.stdout.readline()
            self.assertEqual(joins, "joins\n", None if joins else process.communicate(timeout=LIMIT_S)[1])
            time.sleep(1)  # too early is an interrupt all the same
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
            if os.path.exists(path):
                os.remove(path)
        self.assertEqual(process.returncode, 7, errors)
        self.assertEqual(output, "interrupted\n")

    def test_ctrl_c_ends_the_wait_for_ranks(self):
        for way in WAYS:
            for rank in (0, 1):
                with self.subTest(way=way, rank=rank):
                    self.interrupt(way, rank)

    def test_other_backends_meet_as_without_trireme(self):
        import torch.distributed as dist
        import trireme.torch  # noqa: F401
        with mock.patch.dict(os.environ):
            os.environ.pop("RANK", None)
            with self.assertRaisesRegex(ValueError, "environment variable RANK expected"):
                dist.init_process_group("gloo")


if __name__ == "__main__":
    unittest.main()
