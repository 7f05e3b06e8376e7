#!/usr/bin/env python3
"""--hosts over a real sshd with a key and a configuration of its own: workers outlive launcher and connections; where there is no connection, one line
says why. Skipped where sshd is not installed (tools/deps ssh).

usage: ssh.py TRIREME
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import unittest

from coordinator import Coordinator
from launched import LIMIT_S, workers_in
from ports import free_port

SSHD = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
HOSTS = ("127.0.0.2", "127.0.0.3")
WORDS = ("-n", "3", "--elastic", "1:8", "--restarts", "9", "--hosts", "hosts")


def children_of(parent):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                found.append(int(pid))
        except OSError:
            pass
    return found


class Ssh(Coordinator):
    """What is in Coordinator as a helper."""

    def setUp(self):
        super().setUp()
        self.server, self.port = None, 0
        for name in ("host", "other-host", "user", "other-user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path / name], check=True)
        (self.path / "authorized").write_text((self.path / "user.pub").read_text())
        (self.path / "hosts").write_text(f"{HOSTS[0]} slots=2\n{HOSTS[1]} slots=1\n")
        (self.path / "bin").mkdir()
        shell = self.path / "bin" / "ssh"
        shell.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.path}/config "$@"\n')
        shell.chmod(0o755)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{shell.parent}:{before}"
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        self.server_start()
        self.client_write("user", "host")

    def tearDown(self):
        self.server_end()
        super().tearDown()

    def server_start(self):
        if os.geteuid() == 0:
            pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        for _ in range(5):  # another program may take the port meanwhile
            self.port = free_port(HOSTS[0])
            listen = "".join(f"ListenAddress {host}:{self.port}\n" for host in HOSTS)
            (self.path / "sshd.conf").write_text(f"{listen}HostKey {self.path}/host\nAuthorizedKeysFile {self.path}/authorized\nPidFile none\nUsePAM no\n"
                                                 "StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\n")
            self.server = subprocess.Popen([SSHD, "-D", "-e", "-f", self.path / "sshd.conf"], stderr=subprocess.DEVNULL)
            while self.server.poll() is None:
                try:
                    for host in HOSTS:
                        socket.create_connection((host, self.port), 1).close()
                    return
                except OSError:
                    time.sleep(0.01)
        self.fail("sshd does not start")

    def sessions_end(self):
        for pid in children_of(self.server.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def server_end(self):
        if self.server:
            self.sessions_end()
            self.server.kill()
            self.server.wait()
        self.server = None

    def client_write(self, user, host):
        """A configuration that knows the hosts by one key and shows another."""
        known = (self.path / f"{host}.pub").read_text()
        (self.path / "known").write_text("".join(f"[{name}]:{self.port} {known}" for name in HOSTS))
        (self.path / "config").write_text(f"Host *\nPort {self.port}\nIdentityFile {self.path}/{user}\nIdentitiesOnly yes\nUserKnownHostsFile {self.path}/known\n"
                                          "GlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\n")

    def test_workers_outlive_launcher_and_connections(self):
        """How it ends, and its weights, are in coordinator.py, whose ssh is a shell: the end here is that nobody is left."""
        first = self.start_running("run", *WORDS, "train.steps=100000000", "train.eval_every=0")
        self.kill_launcher(first)
        before, until = self.steps(), time.monotonic() + LIMIT_S
        while (self.steps() <= before or self.attendants()) and time.monotonic() < until:
            time.sleep(0.02)
        self.assertGreater(self.steps(), before, "training stands still without a launcher")
        self.assertEqual(self.attendants(), [], "what a connection started is left behind")
        second = self.start("run", "--attach", "run")
        until = time.monotonic() + LIMIT_S
        while len(self.attendants()) < 3 and time.monotonic() < until:
            time.sleep(0.01)
        self.sessions_end()
        self.assertTrue(second.wait_for("is there again, and worker", 3), second.text())
        second.process.send_signal(signal.SIGINT)
        self.assertEqual(second.end(), 130, second.text())
        self.assertIn("which is saved: --resume continues", second.text())
        self.assertNotIn("killed by signal", second.text())
        self.assertEqual((workers_in(self.path), self.attendants()), ({}, []))

    def test_why_there_is_no_connection_is_one_line(self):
        for user, host, listens, elastic, says in (("user", "other-host", True, True, "Host key verification failed"),
                                                   ("other-user", "host", True, False, "Permission denied"),
                                                   ("user", "host", False, True, "Connection refused")):
            self.client_write(user, host)
            if not listens:
                self.server_end()
            run = self.start("refused", *(WORDS if elastic else ("-n", "3", "--hosts", "hosts")))
            self.assertEqual(run.end(), 1, run.text())
            self.assertRegex(run.text(), rf"\Atrireme: rank \d: no connection to host 127.0.0.\d: .*{says}.* says more\)(; stopping the others)?\n\Z")
            self.assertEqual((workers_in(self.path), self.attendants()), ({}, []))


if __name__ == "__main__":
    if not SSHD or not shutil.which("ssh"):
        print("skipped: no sshd (tools/deps ssh)")
        raise SystemExit(77)
    names = [name for name in vars(Ssh) if name.startswith("test_")]
    suite = unittest.TestSuite(Ssh(name) for name in names)
    raise SystemExit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
