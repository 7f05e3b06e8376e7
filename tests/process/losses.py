#!/usr/bin/env python3
"""Workers that end with an exit code, restarts that fail for a while, and strangers at the store's port: the others go on.

usage: losses.py TRIREME
"""
import os
import resource
import signal
import socket
import subprocess
import time
import unittest

from elastic import FOR_EVER, Run, Runs
from launched import TRIREME, environment_of, long_test, ranks_of

WORDS = ("-n", "4", "--elastic", "2:4", "--restarts", "9", *FOR_EVER)


def files_limit(pid, soft, hard):
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


class Losses(Runs):
    def start_running(self, *words, before=()):
        run = Run(self.path, "lost", *WORDS, *words, before=before)
        self.running.append(run)
        run.wait_for_steps()
        self.assertTrue(run.is_running(), run.text())
        return run

    def test_the_exit_code_of_one_worker_is_a_lost_worker(self):
        run = self.start_running()
        files_limit(ranks_of(run.process.pid)[1], 5, 5)
        run.signal(2, signal.SIGKILL) # the next generation wants sockets, and worker 1 gets none
        self.assertTrue(run.wait_for("rank 1 ended with exit code 1; started again"), run.text())
        self.check(run, *FOR_EVER)
        self.assertRegex(run.text(), "error: open files: want")

    def test_a_worker_whose_memory_fails_again_is_put_out(self):
        run = self.start_running("comm.chaos=on", "train.verify_every=1", "train.guard_limit=1")
        (self.path / "flips").write_text("0 stop 0 0.2\n0 corrupt 2\n0.001 corrupt 2\n")  # one flip waits for the other
        subprocess.run([TRIREME, "chaos", "lost", "--schedule", "flips"], cwd=self.path, check=True, stdout=subprocess.DEVNULL)
        self.assertTrue(run.wait_for("rank 2 ended with exit code 1; started again"), run.text())
        self.assertTrue(run.wait_for("generation 2: resumed"), run.text())
        run.process.terminate()
        self.assertEqual(run.end(), 128 + signal.SIGTERM, run.text())
        self.assertRegex(run.text(), r"rank 2 \(.*\) differ again before step \d+, after 1 repairs \(train.guard_limit\): .* it leaves")

    def test_an_error_that_all_workers_have_ends_the_run(self):
        words = ("-n", "3", "--elastic", "1:3", "--restarts", "99")
        for word, code in (("data.name=fashion-mnist data.path=/nowhere", 1), ("data.name=nothing", 2)):
            run = Run(self.path, f"wrong{code}", *words, *word.split(" "))
            self.running.append(run)
            self.assertEqual(run.end(), code, run.text())
            self.assertLessEqual(run.text().count("started again"), 3, run.text())

    def test_a_loss_that_is_no_number_ends_the_run_at_once(self):
        run = self.start("nan", "-n", "3", "--elastic", "1:3", "--restarts", "99", "optim.name=sgd", "optim.lr=1e6", "optim.clip_norm=0")
        self.assertEqual(run.end(), 1, run.text())
        self.assertNotIn("started again", run.text())

    def test_a_restart_that_fails_is_tried_again(self):
        run = self.start_running()
        log = self.path / "lost" / "log"
        log.rename(self.path / "aside")
        log.write_text("a file where the folder of the logs was\n")
        run.signal(2, signal.SIGKILL)
        self.assertTrue(run.wait_for("cannot start rank 2 again now"), run.text())
        log.unlink() # the launcher makes the folder again
        self.assertTrue(run.wait_for("rank 2 is started again"), run.text())
        self.check(run, *FOR_EVER)

    @long_test
    def test_a_launcher_without_descriptors_starts_the_worker_later(self):
        run = self.start_running()
        launcher = run.process.pid
        before = resource.prlimit(launcher, resource.RLIMIT_NOFILE)
        files_limit(launcher, len(os.listdir(f"/proc/{launcher}/fd")), before[1])
        run.signal(2, signal.SIGKILL)
        self.assertTrue(run.wait_for("cannot start rank 2 again now"), run.text())
        resource.prlimit(launcher, resource.RLIMIT_NOFILE, before)
        self.assertTrue(run.wait_for("rank 2 is started again"), run.text())
        self.check(run, *FOR_EVER)

    def test_strangers_at_the_store_keep_nobody_out(self):
        run = self.start_running(before=("prlimit", "--nofile=256:256"))
        host, port = environment_of(ranks_of(run.process.pid)[0])["TRIREME_STORE"].removeprefix("tcp://").rsplit(":", 1)
        strangers = []
        for _ in range(400):
            stranger = socket.socket()
            stranger.setblocking(False)
            stranger.connect_ex((host, int(port)))
            strangers.append(stranger)
        run.signal(2, signal.SIGKILL)
        self.assertTrue(run.wait_for("is rank 3 of generation"), run.text())
        self.assertNotIn("cannot start rank", run.text()) # strangers have a part of the descriptors
        for stranger in strangers:
            stranger.close()
        self.check(run, *FOR_EVER)


if __name__ == "__main__":
    unittest.main()
