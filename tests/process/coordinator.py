#!/usr/bin/env python3
"""Launchers that are killed while their workers go on: another one takes them on; or nobody does, and they end in order.

usage: coordinator.py TRIREME
"""
import os
import pathlib
import re
import signal
import struct
import subprocess
import time
import unittest
import unittest.mock

from elastic import FOR_EVER, LONG, Elastic
from launched import LIMIT_S, TRIREME, long_test, workers_in


class Coordinator(Elastic):
    """What is in Elastic as a helper; its tests are run by its own program."""

    def kill_launcher(self, run):
        run.process.kill()
        run.end()

    def kill_worker(self, rank):
        os.kill(workers_in(self.path)[rank], signal.SIGKILL)

    def wait_until_over(self, limit=LIMIT_S):
        until = time.monotonic() + limit
        while workers_in(self.path) and time.monotonic() < until:
            time.sleep(0.02)
        self.assertEqual(workers_in(self.path), {})

    def steps(self, name="run"):
        return (self.path / name / "metrics.jsonl").read_text().count('"loss"')

    def log(self, rank, name="run"):
        return (self.path / name / "log" / f"rank-{rank}.log").read_text()

    @long_test
    def test_launchers_are_killed_and_workers_too(self):
        words = ("-n", "3", "--elastic", "1:8", "--restarts", "9", *LONG)
        first = self.start_running("run", *words)
        self.kill_launcher(first)
        before = self.steps()
        until = time.monotonic() + LIMIT_S
        while self.steps() <= before and time.monotonic() < until:
            time.sleep(0.02)
        self.assertGreater(self.steps(), before, "training stands still without a launcher")
        self.kill_worker(1)
        second = self.start("run", *words)
        self.assertTrue(second.wait_for("generation 2"), second.text())
        self.assertIn("this one takes over 2 workers of it", second.text())
        self.assertIn("rank 1 was killed by signal 9 (Killed); started again", second.text())
        other = self.start("run", *words)
        self.assertEqual(other.end(), 2, other.text())
        self.assertIn("which lives, is the launcher of this one", other.text())
        self.kill_launcher(second)
        third = self.start("run", "--attach", "run")
        self.check(third, *LONG)
        printed = re.findall(r"step (\d+)  loss \S+  test loss", first.text() + second.text() + third.text())
        self.assertEqual(len(printed), len(set(printed)), "a line was passed on twice")
        self.assertFalse((self.path / "run" / "launcher.journal").exists())

    def test_a_run_that_ends_without_a_launcher_is_reported_by_the_next_one(self):
        run = self.start_running("run", "-n", "2", "--elastic", "1:8")
        self.kill_launcher(run)
        self.wait_until_over()
        self.check(self.start("run", "-n", "2", "--elastic", "1:8"))

    @long_test
    def test_nobody_else_writes_where_workers_continue_alone(self):
        words = ("train.steps=30000",)
        run = self.start_running("run", "-n", "2", "--elastic", "1:8", *words)
        self.kill_launcher(run)
        other = subprocess.run([TRIREME, "train", "--resume", "run"], cwd=self.path, capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(other.returncode, 2, other.stderr)
        self.assertRegex(other.stderr, r"error: run: a run writes here, begun by process \d+ on \S+: want another --out")
        self.check(self.start("run", "-n", "2", "--elastic", "1:8", *words), *words)

    def test_how_an_earlier_job_ended_says_nothing_of_this_one(self):
        words = ("-n", "2", "--elastic", "1:8", "--continue", *FOR_EVER)
        first = self.start_running("run", *words)
        first.process.terminate()
        first.end()
        second = self.start("run", *words)
        self.assertTrue(second.wait_for("epoch"), second.text())
        self.kill_launcher(second)
        for rank in list(workers_in(self.path)):
            self.kill_worker(rank)
        self.wait_until_over()
        third = self.start("run", *words)
        self.assertTrue(third.wait_for("none of its workers is left: it begins again"), third.text())
        self.assertTrue(third.wait_for("epoch"), third.text())
        self.check(third, *FOR_EVER)

    def test_nobody_comes(self):
        """All are there; and one was killed, so that the others have to save without each other."""
        for name, killed in (("all", False), ("some", True)):
            run = self.start_running(name, "-n", "3", "--elastic", "1:8", "--alone", "1", *FOR_EVER, "checkpoint.every_epochs=0")
            victim = workers_in(self.path)[0]
            run.process.kill()
            if killed:  # at once: in a second all of them end
                os.kill(victim, signal.SIGKILL)
            run.end()
            self.wait_until_over()
            self.assertIn("there was no launcher for 1 s: this run is saved and ends", self.log(1, name))
            self.assertIn("is saved: --resume continues", "".join(self.log(rank, name) for rank in range(3)))
            self.assertEqual(len(list((self.path / name / "checkpoints").glob("step-*"))), 1)
            told = self.start(name, "-n", "3", "--elastic", "1:8", "--alone", "1", *FOR_EVER, "checkpoint.every_epochs=0")
            if not killed:  # all of them said how they ended: 3 where a slow machine made them lose each other before
                self.assertIn(told.end(), (3, 130), told.text())
                self.assertIn("is saved: --resume continues", told.text())
            else:
                told.process.send_signal(signal.SIGKILL)
                told.end()
                for pid in workers_in(self.path).values():
                    os.kill(pid, signal.SIGKILL)

    def test_workers_of_another_launcher_join_and_outlive_the_first_ones(self):
        os.environ["TRIREME_TOKEN"] = "a-token-of-this-test"
        words = ("--elastic", "1:8", *FOR_EVER)
        first = self.start_running("run", "-n", "2", "--listen", "127.0.0.1", *words)
        address = re.search(r"--join (\S+),", first.text()).group(1)
        second = self.start("run", "-n", "2", "--join", address, *words)
        self.assertTrue(first.wait_for("4 workers"), first.text())
        for rank in (0, 1):
            self.kill_worker(rank)
        self.assertTrue(first.wait_for("the others continue", 2), first.text())
        self.assertTrue(second.wait_for(": 2 workers, step"), second.text())
        self.check(second, *FOR_EVER)
        self.assertEqual(first.end(), 0, first.text())
        os.environ["TRIREME_TOKEN"] = "a-token-of-another-one"
        other = self.start("other", "-n", "2", "--join", address, *words)
        self.assertNotEqual(other.end(), 0, other.text())
        del os.environ["TRIREME_TOKEN"]

    def hosts(self):
        """Two hosts that are this machine, by an ssh that is a shell with nothing of our environment."""
        (self.path / "hosts").write_text("127.0.0.1 slots=2\nlocalhost slots=1\n")
        (self.path / "bin").mkdir()
        shell = self.path / "bin" / "ssh"
        shell.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\n'
                         'echo "what a login says"\nexec env -i PATH="$PATH" OMP_NUM_THREADS=1 sh -c "$2"\n')
        shell.chmod(0o755)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{shell.parent}:{before}"
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        return "-n", "3", "--elastic", "1:8", "--restarts", "9", "--hosts", "hosts"

    def attendants(self):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                here = os.readlink(f"/proc/{pid}/cwd") == str(self.path.resolve())
            except OSError:
                continue
            if here and len(words) > 1 and words[1] == b"attend":
                found.append(int(pid))
        return found

    @long_test
    def test_workers_on_other_hosts_outlive_launcher_and_connection(self):
        steps = "train.steps=12000"
        words = (*self.hosts(), steps)
        first = self.start_running("run", *words)
        self.kill_launcher(first)
        before = self.steps()
        until = time.monotonic() + LIMIT_S
        while (self.steps() <= before or self.attendants()) and time.monotonic() < until:
            time.sleep(0.02)
        self.assertGreater(self.steps(), before, "training stands still without a launcher")
        self.assertEqual(self.attendants(), [], "what a connection started is left behind")
        self.kill_worker(1)
        (self.path / "hosts").write_text("127.0.0.1 slots=3\n")
        other = self.start("run", *words)
        self.assertEqual(other.end(), 2, other.text())
        self.assertIn("is of a job on other hosts, whose launcher was killed: want '127.0.0.1 2, localhost 1'", other.text())
        (self.path / "hosts").write_text("127.0.0.1 slots=2\nlocalhost slots=1\n")
        second = self.start("run", "--attach", "run")
        self.assertTrue(second.wait_for("started again"), second.text())
        self.assertTrue(second.wait_for("is rank 2 of generation"), second.text())  # else what is just being started is cut as well
        cut = self.attendants()
        for pid in cut:
            os.kill(pid, signal.SIGKILL)
        self.assertTrue(cut and second.wait_for("is there again, and worker", len(cut)), second.text())
        self.check(second, steps)
        printed = re.findall(r"step (\d+)  loss \S+  test loss", first.text() + second.text())
        self.assertEqual(sorted(int(step) for step in printed), list(range(200, 12001, 200)), "lines were lost, or came twice")
        self.assertEqual(first.text().count("what a login says"), 3)

    def test_a_launcher_that_is_asked_to_end_leaves_nobody_on_other_hosts(self):
        words = (*self.hosts(), "train.steps=100000")
        first = self.start_running("run", *words)
        left = workers_in(self.path)
        self.kill_launcher(first)
        (self.path / "run" / "launcher.journal").unlink()  # as after a restart of the launcher's machine
        second = self.start("run", *words, "--overwrite")
        self.assertTrue(second.wait_for("is of an earlier job in run/log", 2), second.text())
        second.wait_for_steps()
        self.assertTrue(second.wait_for("3 ranks"), second.text())
        self.assertFalse(set(left.values()) & set(workers_in(self.path).values()), "two jobs are in one folder")
        second.process.send_signal(signal.SIGINT)
        self.assertEqual(second.end(), 130, second.text())
        self.assertEqual((workers_in(self.path), self.attendants()), ({}, []))

    def test_with_alone_0_nobody_is_left(self):
        run = self.start_running("run", "-n", "2", "--elastic", "1:8", "--alone", "0", *FOR_EVER)
        self.kill_launcher(run)
        self.wait_until_over()

    def test_what_cannot_be_is_refused(self):
        for words, says in (
            (["--attach", "nowhere"], "--attach: want the folder of a run, got no nowhere"),
            (["--attach", "."], "want a run whose launcher was killed, got no journal of one"),
            (["-n", "2", "--alone", "3"], "--alone requires --elastic"),
            (["-n", "2", "--join", "h:1"], "--join requires -n N and --elastic MIN:MAX"),
            (["-n", "2", "--elastic", "1:8", "--join", "h:1"], "want the token of that job in the environment"),
            (["-n", "2", "--elastic", "1:8", "--listen", "h"], "--listen: want a token that those who join know too"),
        ):
            run = self.start("refused", *words)
            self.assertNotEqual(run.end(), 0, run.text())
            self.assertIn(says, run.text())

    def test_a_token_with_a_blank_is_refused_and_not_shown(self):
        for token in ("se cret", "secret\n", "sec\x7fret"):
            with unittest.mock.patch.dict(os.environ, TRIREME_TOKEN=token):
                run = self.start("refused", "-n", "2", "--elastic", "1:8", "--listen", "127.0.0.1")
            self.assertEqual(run.end(), 2, run.text())
            self.assertIn("TRIREME_TOKEN: want no blanks and no control characters", run.text())
            self.assertNotIn("cret", run.text())

    def victim(self):
        """A process of this user that has nothing to do with any run."""
        process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        start = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        return process, f"{process.pid} {start}"

    def test_a_journal_that_names_a_process_of_somebody_else_does_not_reach_it(self):
        process, place = self.victim()
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        journal = self.path / "forged" / "launcher.journal"
        journal.parent.mkdir()
        records = {"command": "trireme\0", "folder": str(self.path), "hosts": "", "store": "",
                   "job": f"{'0' * 64} 0 0 2 0 2", "process/0": f"0 {place}", "process/1": f"0 {place}"}
        text = b"TRIJ0001" + boot.encode()
        for key, value in records.items():
            body = struct.pack("<II", len(key), len(value)) + key.encode() + value.encode()
            text += body[:8] + struct.pack("<I", crc32c(body)) + body[8:]
        for mode, code, says in ((0o666, 2, "want a file of user"), (0o644, 2, "that others cannot read or write"),
                                 (0o600, 0, "none of its workers is left: it begins again")):
            journal.write_bytes(text)
            journal.chmod(mode)
            run = self.start("forged", "-n", "2", "--elastic", "1:8", "train.steps=20")
            self.assertEqual(run.end(), code, run.text())
            self.assertIn(says, run.text())
            self.assertIsNone(process.poll(), "a process of somebody else was killed")

    def test_a_place_that_names_a_process_of_somebody_else_does_not_reach_it(self):
        process, place = self.victim()
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        words = (*self.hosts(), "train.steps=20")
        log = self.path / "forged" / "log"
        log.mkdir(parents=True)
        for name, mode in (("rank-7.place", 0o600), ("rank-8.place", 0o666)):
            (log / name).write_text(f"{'0' * 32} {boot} 0 {place}\n")
            (log / name).chmod(mode)
        run = self.start("forged", *words)
        self.assertEqual(run.end(), 0, run.text())
        self.assertRegex(run.text(), "not believed: .*forged/log/rank-8.place: want a file of user")
        self.assertIsNone(process.poll(), "a process of somebody else was killed")


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


if __name__ == "__main__":
    names = [name for name in vars(Coordinator) if name.startswith("test_")]
    suite = unittest.TestSuite(Coordinator(name) for name in names)
    raise SystemExit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
