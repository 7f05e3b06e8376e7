#!/usr/bin/env python3
"""Ranks that the kernel kills for want of memory are named so, and others that are killed are not. Needs a control group to strike in."""
import os
import pathlib
import signal
import subprocess
import sys
import unittest

from launched import LIMIT_S, TRIREME

LIMIT = 256 << 20
RANK = """
import os, signal, sys, time
if os.environ["RANK"] == sys.argv[1]:
    time.sleep(0.2)
    held = bytearray(1 << 30) if sys.argv[2] == "greedy" else os.kill(os.getpid(), signal.SIGKILL)
    for at in range(0, len(held), 4096):
        held[at] = 1
time.sleep(30)
"""


class Group:
    """A control group of its own, of either version, that may have LIMIT bytes."""

    def __enter__(self):
        for base, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            self.path = pathlib.Path(base, f"trireme-test-{os.getpid()}")
            try:
                self.path.mkdir()
                (self.path / limit).write_text(str(LIMIT))
                for swap, most in (("memory.memsw.limit_in_bytes", LIMIT), ("memory.swap.max", 0)): # it shall not go there instead
                    if (self.path / swap).exists():
                        (self.path / swap).write_text(str(most))
            except OSError:
                self.leave()
                continue
            return self
        raise unittest.SkipTest("no control group with a limit of memory can be made here")

    def join(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def leave(self):
        try:
            self.path.rmdir()
        except OSError:
            pass

    def __exit__(self, *_):
        self.leave()


class Oom(unittest.TestCase):
    def launched(self, *words, manner="greedy"):
        with Group() as group:
            return subprocess.run([TRIREME, "launch", *words, "--", sys.executable, "-c", RANK, "1", manner], preexec_fn=group.join,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)

    def test_who_took_too_much_memory_is_reported(self):
        done = self.launched("-n", "2")
        self.assertEqual(done.returncode, 128 + signal.SIGKILL, done.stdout)
        self.assertIn("trireme: rank 1 was killed by the kernel for want of memory (signal 9; 'trireme plan' says what a rank takes; "
                      "a smaller train.batch, or parallel.sync=zero3, takes less); stopping the others\n", done.stdout)

    def test_who_was_only_killed_is_not_reported_so(self):
        done = self.launched("-n", "2", manner="killed")
        self.assertEqual(done.returncode, 128 + signal.SIGKILL, done.stdout)
        self.assertIn("trireme: rank 1 was killed by signal 9 (Killed); stopping the others\n", done.stdout)


if __name__ == "__main__":
    unittest.main()
