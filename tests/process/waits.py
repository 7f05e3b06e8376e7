#!/usr/bin/env python3
"""Waits for other processes: each says after 10 s what it waits for, ends at once at a stop signal, and names at its limit the ranks that did not come.

usage: waits.py TRIREME
"""
import itertools
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from launched import LIMIT_S, TRIREME
from ports import free_port

CONFIG = """
model: {name: mlp, hidden: [8]}
data: {name: synthetic, synthetic_count: 64, synthetic_width: 8}
train: {batch: 16, epochs: 1, threads: 1}
"""


def torch(rank, address="127.0.0.1", world=2):
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": address, "MASTER_PORT": str(free_port())}


def slurm():
    return {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0", "SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "7",
            "SLURM_STEP_NODELIST": "here", "SLURM_STEP_TASKS_PER_NODE": "2"}


def tensorflow(index):
    cluster = {"worker": [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})}


def openmpi(folder):
    return {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "PMIX_NAMESPACE": f"waits-{os.getpid()}", "TMPDIR": folder}


class Process:
    """A process whose standard error is read as it comes."""

    def __init__(self, command, variables, folder):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRIREME_", "SLURM_", "OMPI_"))}
        self.said, self.is_over, self.changed = "", False, threading.Condition()
        self.process = subprocess.Popen(command, env={**environment, **variables}, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stderr:
            with self.changed:
                self.said += line
                self.changed.notify_all()
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def wait_for(self, word):
        with self.changed:
            return self.changed.wait_for(lambda: word in self.said or self.is_over, LIMIT_S) and word in self.said

    def catches(self, number):
        """The signal does not end it by the kernel's own hand any more."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until and self.process.poll() is None:
            mask = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().split("SigCgt:")[1].split()[0]
            if int(mask, 16) >> (number - 1) & 1:
                return True
            time.sleep(0.02)
        return False

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()


class Waits(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.folder = self.place.name
        self.config = f"{self.folder}/run.yaml"
        pathlib.Path(self.config).write_text(CONFIG)
        self.processes = []
        self.addCleanup(self.place.cleanup)
        self.addCleanup(lambda: [one.end() for one in self.processes])

    def start(self, command, variables):
        self.processes.append(Process([TRIREME, *command], variables, self.folder))
        return self.processes[-1]

    def train(self, *words):
        return ["train", self.config, "--out", f"{self.folder}/run{len(self.processes)}", *words]

    def kinds(self):
        """Name, command, environment, what it must say: for each way to wait for others."""
        hanging = pathlib.Path(self.folder, "bin", "ssh")
        hanging.parent.mkdir(exist_ok=True)
        hanging.write_text("#!/bin/sh\nsleep 1000\n")
        hanging.chmod(0o755)
        hosts = pathlib.Path(self.folder, "hosts")
        hosts.write_text("localhost\n127.0.0.2\n")
        elastic = {"TRIREME_TOKEN": "0123456789abcdef0123456789abcdef"}
        ssh = {"PATH": f"{hanging.parent}:{os.environ['PATH']}"}
        return [
            ("rank 0 of RANK and WORLD_SIZE", self.train(), torch(0), "waiting for rank 1 of 2 at 127.0.0.1:"),
            ("rank 1 of RANK and WORLD_SIZE", self.train(), torch(1), "waiting for rank 0 of 2 at 127.0.0.1:"),
            ("rank 0 of 4", self.train(), torch(0, world=4), "waiting for ranks 1, 2, 3 of 4 at 127.0.0.1:"),
            ("a name that does not resolve", self.train(), torch(1, "nohost.invalid"), "(MASTER_ADDR nohost.invalid does not resolve: "),
            ("rank 0 with such a name", self.train(), torch(0, "nohost.invalid"), "waiting for rank 1 of 2 at nohost.invalid:"),
            ("TF_CONFIG", self.train(), tensorflow(0), "waiting for rank 1 of 2 at 127.0.0.1:"),
            ("TF_CONFIG, rank 1", self.train(), tensorflow(1), "waiting for rank 0 of 2 at 127.0.0.1:"),
            ("Slurm", self.train(), slurm(), "waiting for rank 1 of 2 at 127.0.0.1:"),
            ("mpirun, a folder", self.train(), openmpi(self.folder), f"waiting for rank 0 of 2 at {self.folder}/"),
            ("bench", ["bench", "all_reduce", "--sizes", "4"], torch(0), "waiting for rank 1 of 2 at 127.0.0.1:"),
            ("doctor", ["doctor", "--wait", "1000"], torch(1), "waiting for rank 0 of 2 at 127.0.0.1:"),
            ("doctor, rank 0", ["doctor", "--wait", "1000"], torch(0), None),
            ("parameter servers", self.train("parallel.sync=ps"), {**torch(0), "TRIREME_SERVERS": "1"}, "waiting for rank 1 of 2, a parameter server"),
            ("--join", self.train("-n", "1", "--elastic", "1:2", "--join", f"127.0.0.1:{free_port()}"), elastic, None),
            ("ssh that hangs", self.train("-n", "2", "--hosts", str(hosts)), ssh, None),
            ("ssh that hangs, launch", ["launch", "-n", "2", "--hosts", str(hosts), "--", "true"], ssh, None),
            ("ssh that hangs, doctor", ["doctor", "--wait", "1000", "--hosts", str(hosts)], ssh, None),
            ("a run that is to come", ["eval", f"{self.folder}/norun", "--follow"], {}, None),
            ("a store for others", ["store", "--listen", "127.0.0.1:0"], {"TRIREME_TOKEN": "0123456789abcdef0123456789abcdef"}, None),
        ]

    def test_a_wait_says_what_it_waits_for_and_ends_at_a_signal(self):
        kinds, numbers = self.kinds(), itertools.cycle((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1))
        kinds.sort(key=lambda row: (row[0] != "--join", row[3] is not None))
        # --join has a limit of its own, 10 s: it is over before the others start. Those that nobody reports are next.
        for rows in (kinds[:1], kinds[1:]):
            begun = [(name, self.start(command, variables), says) for name, command, variables, says in rows]
            for (name, one, says), number in zip(begun, numbers):
                with self.subTest(wait=name, signal=number.name):
                    self.assertTrue(one.catches(number), one.said)
                    if says is not None:
                        self.assertTrue(one.wait_for(says), one.said)
                    one.process.send_signal(number)
                    self.assertEqual(one.process.wait(LIMIT_S), 0 if name == "a store for others" else 128 + number, one.said)

    def test_at_its_limit_a_wait_names_who_did_not_come(self):
        short = "comm.timeout_s=1"
        rows = [(torch(0), "rank 1 did not join within 1 s (rendezvous at 127.0.0.1:"), (torch(0, world=4), "ranks 1, 2, 3 did not join within 1 s"),
                (torch(1), "rank 0 did not join within 1 s (rendezvous at 127.0.0.1:"), (torch(1), ": Connection refused)"),
                (torch(1, "nohost.invalid"), "MASTER_ADDR nohost.invalid does not resolve")]
        begun = [(self.start(self.train(short), variables), says) for variables, says in rows]
        for one, says in begun:
            with self.subTest(says=says):
                self.assertEqual(one.process.wait(LIMIT_S), 3)
                self.assertTrue(one.wait_for(says), one.said)
                self.assertEqual(one.said.count("error:"), 1, one.said)


if __name__ == "__main__":
    unittest.main(verbosity=1)
