#!/usr/bin/env python3
"""trireme top on a pseudo terminal: keys choose, sort, filter, pause; the terminal has its former settings and screen however
it ends; the window's size is followed; without a terminal it is plain lines.

usage: top.py TRIREME
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

from launched import LIMIT_S, TRIREME, has_address_sanitizer

CONFIG = "model: {name: mlp}\ndata: {name: synthetic}\ntrain: {epochs: 1000}\n"
RANKS = 30
SEQUENCE = re.compile(r"\033\[[0-9;?]*[A-Za-z]")


def line(**words):
    return json.dumps(words, separators=(",", ":")) + "\n"


def shell(told, run, words):
    """What a shell does: top is a job in the foreground, and what becomes of it is told. One that nobody waits for cannot be stopped by ctrl-Z."""
    for number in (signal.SIGHUP, signal.SIGTTOU, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    print("ready", flush=True)
    os.read(0, 1) # until the settings before are known
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        for number in (signal.SIGHUP, signal.SIGTTOU, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.execv(TRIREME, [TRIREME, "top", run, *words])
    os.write(told, f"{job}\n".encode())
    while True:
        state = os.waitpid(job, os.WUNTRACED)[1]
        os.write(told, f"{state}\n".encode())
        if not os.WIFSTOPPED(state):
            break
    os._exit(0)


class Terminal:
    """top with a terminal of its own, and what it has drawn last."""

    def __init__(self, run, *words, rows=30, columns=100):
        heard, told = os.pipe()
        self.shell, self.fd = pty.fork()
        if self.shell == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            shell(told, run, words)
        os.close(told)
        self.heard = os.fdopen(heard)
        self.all = b""
        self.read_until(lambda: b"ready" in self.all)
        self.before = termios.tcgetattr(self.fd)
        self.type("\n")
        self.pid, self.state = int(self.heard.readline()), None

    def type(self, text):
        os.write(self.fd, text.encode())

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def screen(self):
        """Lines of the newest whole screen."""
        whole = self.all.decode(errors="replace").split("\033[H")
        drawn = next((one for one in reversed(whole) if "\033[J" in one), "")
        return [SEQUENCE.sub("", one.replace("\033[7m", "> ")) for one in drawn.split("\033[J")[0].replace("\r", "").split("\n")]

    def read_until(self, is_so, limit=LIMIT_S):
        until = time.monotonic() + limit
        while not is_so():
            assert time.monotonic() < until, "\n".join(self.screen()) + repr(self.all[-3000:])
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.all += os.read(self.fd, 65536)
                except OSError: # the other side is closed
                    time.sleep(0.05)

    def shows(self, pattern):
        self.read_until(lambda: re.search(pattern, "\n".join(self.screen()), re.M))
        return self.screen()

    def ranks(self):
        """Those of the table, from its first row on."""
        return [int(found[1]) for one in self.screen() if (found := re.match(r"(?:> )? *(\d+)  (?:worker|server)", one))]

    def wait(self):
        """Its status, once it has ended or stopped."""
        self.read_until(lambda: select.select([self.heard], [], [], 0)[0])
        self.state = int(self.heard.readline())
        while select.select([self.fd], [], [], 0.1)[0]: # what it said at its end
            try:
                self.all += os.read(self.fd, 65536)
            except OSError:
                break
        return self.state

    def is_as_before(self, case):
        case.assertEqual(termios.tcgetattr(self.fd), self.before)
        text = self.all.decode(errors="replace")
        case.assertEqual(text.count("\033[?1049h"), text.count("\033[?1049l"))
        case.assertGreater(text.rindex("\033[?25h"), text.rindex("\033[?25l"))

    def close(self):
        if self.state is None or os.WIFSTOPPED(self.state):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.shell, 0)
        self.heard.close()
        if self.fd is not None:
            os.close(self.fd)


class Top(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.run_ = pathlib.Path(cls.temporary.name) / "run"
        (cls.run_ / "ranks").mkdir(parents=True)
        (cls.run_ / "config.yaml").write_text(CONFIG)
        (cls.run_ / "metrics.jsonl").write_text("".join(line(step=step, epoch=step / 10, loss=2 / (1 + step), lr=0.1, samples_per_s=10, data=0.01,
                                                             forward=0.01, backward=0.02, comm=0.03, optimizer=0.01, other=0) for step in range(50)))
        for rank in range(RANKS): # rank 7 waits least and is ahead, rank 3 has most memory, rank 5 is silent
            comm = 0.001 if rank == 7 else 0.5 + rank / 100
            (cls.run_ / f"ranks/rank-{rank}.jsonl").write_text(
                line(step=rank + (100 if rank == 7 else 0), time=time.time() - (1000 if rank == 5 else -1e6), generation=0, world=RANKS, steps=10, data=0.1,
                     forward=0.2, backward=0.1, comm=comm, optimizer=0, other=0, memory_bytes=(rank + (500 if rank == 3 else 0)) << 20))
        (cls.run_ / f"ranks/rank-{RANKS}.jsonl").write_text(line(time=time.time() + 1e6, role="server", seconds=5, pushes=50, pulls=10,
                                                                 taken_bytes=10000000, served_bytes=5000000, memory_bytes=1))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def open(self, *words, **size):
        top = Terminal(str(self.run_), *words, **size)
        self.addCleanup(top.close)
        top.shows("by rank, least first; all; .* q: quit")
        return top

    def test_rows_are_sorted_by_each_column_and_turned_around(self):
        top = self.open(rows=60)
        self.assertEqual(top.ranks(), list(range(RANKS + 1)))
        for keys, told, first in (("s", "by step, least first", [0, 1]), ("r", "by step, greatest first", [7, 29]), (">", "by wait, least first", [7, 0]),
                                  ("\033[C", "by memory, greatest first", [3, 29]), ("r", "by memory, least first", [0, 30]),
                                  ("<", "by wait, least first", [7, 0]), ("\033[D\033OD", "by rank, least first", [0, 1]), ("<", "by memory, greatest", [3, 29])):
            top.type(keys)
            top.shows(told)
            self.assertEqual(top.ranks()[:2], first, (keys, top.screen()))
        top.type("q")
        self.assertEqual(top.wait(), 0)
        top.is_as_before(self)

    def test_a_rank_is_chosen_and_followed(self):
        top = self.open(rows=24)
        self.assertLess(len(top.ranks()), 10)
        for keys, rank in (("j", 0), ("j\033[B", 2), ("k", 1), ("\033[F", 30), ("\033[A", 29), ("\033[1~", 0), ("j" * 5, 5)):
            top.type(keys)
            screen = top.shows(rf"^>  +{rank}  ")
            self.assertIn(rank, top.ranks())
            self.assertLessEqual(len(screen), 24)
            told = "parameter server, rank 30" if rank == 30 else f"step of rank {rank}: "
            self.assertTrue(any(one.startswith(told) for one in screen), screen)
        top.type("ss") # by wait: it is among others, and still chosen
        top.shows("by wait")
        top.shows(r"^>  +5  worker  silent")
        top.type("\033") # none
        top.shows("step of rank 0: 80.000 ms")
        self.assertFalse(any(one.startswith(">") for one in top.screen()))

    def test_ranks_are_filtered_by_what_they_do(self):
        top = self.open(rows=60)
        for told, ranks in (("training", [rank for rank in range(RANKS) if rank != 5]), ("serving", [RANKS]), ("stopped", []), ("silent", [5]),
                            ("left", []), ("ended", [])):
            top.type("f")
            top.shows(f"only {told}; {'none' if not ranks else f'1 to {len(ranks)} of {len(ranks)}'}")
            self.assertEqual(top.ranks(), ranks)
        top.type("f")
        top.shows(f"all; 1 to {RANKS + 1} of {RANKS + 1}")

    def test_help_and_pause(self):
        top = self.open("--every", "0.1")
        top.type("?")
        top.shows("keys of trireme top")
        top.type("x")
        top.shows("by rank")
        top.type("h")
        top.shows("keys of trireme top")
        top.type("x ")
        top.shows(r"not running here  \(paused\)")
        with open(self.run_ / "metrics.jsonl", "a", encoding="utf-8") as lines:
            lines.write(line(step=50, epoch=5.1, loss=1, lr=0.1, samples_per_s=10, data=0.08, forward=0, backward=0, comm=0, optimizer=0, other=0))
        time.sleep(0.5)
        top.type("s") # keys are followed meanwhile
        top.shows("by step")
        self.assertTrue(any("  step 50/" in one for one in top.screen()), top.screen())
        top.type(" ")
        top.shows(r"  step 51/")
        self.assertNotIn("paused", top.screen()[0])

    def test_the_window_may_change_its_size(self):
        top = self.open("--every", "1000", rows=24)
        before = len(top.ranks())
        self.assertNotIn("backward", "".join(top.screen()[-15:]))
        top.resize(50, 40)
        top.read_until(lambda: len(top.ranks()) > before)
        self.assertLessEqual(max(len(one) for one in top.screen()), 40)
        self.assertLessEqual(len(top.screen()), 50)
        top.resize(50, 120) # there is room for the parts of each rank's steps
        top.shows(r"wait % data forward backward optimizer other +memory")
        top.shows(r"^ +2  worker  training +3 +92\.000 +57 +11 +22 +11 +0 +0 +2 MiB")

    def test_signals_that_end_it_leave_the_terminal_as_it_was(self):
        for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGHUP, 0), (signal.SIGQUIT, -signal.SIGQUIT),
                             (signal.SIGSEGV, -signal.SIGSEGV)):
            if number == signal.SIGSEGV and has_address_sanitizer(): # which exits by itself
                continue
            with self.subTest(signal=number):
                top = self.open()
                self.assertNotEqual(termios.tcgetattr(top.fd), top.before)
                os.kill(top.pid, number)
                self.assertEqual(os.waitstatus_to_exitcode(top.wait()), code)
                top.is_as_before(self)

    def test_it_is_stopped_and_continues(self):
        top = self.open("--every", "0.1")
        ours = termios.tcgetattr(top.fd)
        for keys in ("\032", None): # ctrl-Z, and from elsewhere
            if keys:
                top.type(keys)
            else:
                os.kill(top.pid, signal.SIGTSTP)
            self.assertTrue(os.WIFSTOPPED(top.wait()))
            top.is_as_before(self)
            top.all = b""
            os.kill(top.pid, signal.SIGCONT)
            top.shows("by rank")
            self.assertEqual(termios.tcgetattr(top.fd), ours)
            top.all = b"\033[?1049h\033[?25l" + top.all.split(b"\033[?25l", 1)[1] # what it left is told once
        top.type("q")
        self.assertEqual(top.wait(), 0)
        top.is_as_before(self)

    def test_ctrl_c_ends_it(self):
        top = self.open()
        top.type("\003")
        self.assertEqual(top.wait(), 0)
        top.is_as_before(self)

    def test_a_terminal_that_goes_ends_it(self):
        top = self.open()
        os.close(top.fd)
        top.fd = None
        self.assertTrue(select.select([top.heard], [], [], 60)[0])
        top.state = int(top.heard.readline())
        self.assertFalse(os.WIFSTOPPED(top.state))

    def test_without_a_terminal_it_is_lines(self):
        for words in ([], ["--json"]):
            with subprocess.Popen([TRIREME, "top", str(self.run_), "--every", "0.1", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  text=True) as top:
                try:
                    for _ in range(2):
                        told = top.stdout.readline()
                        self.assertNotIn("\033", told)
                        self.assertRegex(told, r"^\{" if words else r"^not running here  epoch .* loss ")
                finally:
                    top.terminate()


class Progress(unittest.TestCase):
    """The line of trireme train."""

    WORDS = ["train", "run.yaml", "--out", "run", "train.steps=1000000", "train.epochs=100000", "train.threads=1"]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        (pathlib.Path(self.folder.name) / "run.yaml").write_text("model: {name: mlp, hidden: [8]}\ndata: {name: synthetic, synthetic_count: 1000}\n")

    def tearDown(self):
        self.folder.cleanup()

    def test_on_a_terminal_one_line_is_rewritten_with_the_history_of_the_loss(self):
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.folder.name)
            os.execv(TRIREME, [TRIREME, *self.WORDS])
        text, until = b"", time.monotonic() + LIMIT_S
        line_ = r"\r\033\[K\033\[\?7lepoch \d+/\d+  step \d+/\d+  loss [\d.]+ [^\r\n]* left  ([▁▂▃▄▅▆▇█]+)\033\[\?7h"
        while len(re.findall(line_, text.decode(errors="replace"))) < 3:
            self.assertLess(time.monotonic(), until, text)
            text += os.read(fd, 65536)
        os.kill(pid, signal.SIGINT)
        while True:
            try:
                text += os.read(fd, 65536)
            except OSError: # it has ended
                break
        os.waitpid(pid, 0)
        os.close(fd)
        drawn = re.findall(line_, text.decode(errors="replace"))
        self.assertEqual(drawn[-1][0], "█") # the loss falls: its greatest is the first
        self.assertIn(drawn[-1][-1], "▁▂▃▄")

    def test_without_one_there_are_whole_lines(self):
        run = subprocess.run([TRIREME, *self.WORDS, "train.steps=300"], cwd=self.folder.name, capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn("\033", run.stdout + run.stderr)
        self.assertNotIn("\r", run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
