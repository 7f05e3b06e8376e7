#!/usr/bin/env python3
"""A real Slurm of two nodes, each a network namespace with a host name of its own: the weights of one process, a job that
is stopped and queued again, and one that loses a node.

usage: slurm.py TRIREME [TEST ...]; exit code 77 where it cannot be: not root, or no slurmctld, slurmd, munged.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from launched import TRIREME

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "munged", "mungekey", "ip", "nsenter", "unshare")
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "slurm"
NODES = {"ctl": "198.18.77.3", "n0": "198.18.77.1", "n1": "198.18.77.2"}
SLURM_CONF = """
ClusterName=trireme
SlurmctldHost=ctl(198.18.77.3)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ReturnToService=2
SlurmdTimeout=10
KillWait=5
JobRequeue=1
SlurmdParameters=config_overrides
NodeName=n0 NodeAddr=198.18.77.1 CPUs=2 RealMemory=1000 State=UNKNOWN
NodeName=n1 NodeAddr=198.18.77.2 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=p Nodes=n0,n1 Default=YES MaxTime=INFINITE State=UP
"""
CONFIG = """
model:
  layers:
    - batch_norm
    - linear: {out: 300, relu: true}
    - dropout: 0.2
    - linear: classes
data: {name: synthetic, synthetic_count: 600, synthetic_width: 32}
train: {batch: 60, epochs: 4000, steps: 300, shards: 8}
optim: {name: adamw, lr: 0.01, clip_norm: 1}
comm: {timeout_s: 60}
"""
LONG = "train.steps=6000"


class Cluster:
    """Namespaces, munged, slurmctld and two slurmd."""

    def __init__(self, folder):
        self.folder, self.name, self.daemons = folder, f"tri{os.getpid()}", []
        (folder / "state").mkdir()
        (folder / "slurm.conf").write_text(SLURM_CONF.format(folder=folder))
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in NODES.items()))
        for node in NODES:
            (folder / f"spool-{node}").mkdir()
            self.run("ip", "netns", "add", self.space(node))
        self.network()
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "OMP_NUM_THREADS": "1",
                            "TRIREME": TRIREME}
        self.environment.pop("XDG_RUNTIME_DIR", None)
        self.run("mungekey", "-c", "-k", folder / "munge.key")
        folder.chmod(0o755)
        self.daemon("ctl", "munged", "--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.sock",
                    f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed")
        self.wait("munged", lambda: (folder / "munge.sock").exists())
        self.daemon("ctl", "slurmctld", "-D")
        for node in ("n0", "n1"):
            self.daemon(node, "slurmd", "-D", "-N", node)
        self.wait("nodes", lambda: self.output("sinfo", "-h", "-o", "%D %t").split() == ["2", "idle"])

    def space(self, node):
        return f"{self.name}-{node}"

    @staticmethod
    def run(*words):
        subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)

    def network(self):
        ctl = self.space("ctl")
        self.run("ip", "-n", ctl, "link", "add", "switch0", "type", "bridge")
        self.run("ip", "-n", ctl, "addr", "add", NODES["ctl"] + "/24", "dev", "switch0")
        for node in ("n0", "n1"):
            self.run("ip", "-n", ctl, "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", self.space(node))
            self.run("ip", "-n", ctl, "link", "set", node, "master", "switch0", "up")
            self.run("ip", "-n", self.space(node), "addr", "add", NODES[node] + "/24", "dev", "eth0")
            self.run("ip", "-n", self.space(node), "link", "set", "eth0", "up")
        self.run("ip", "-n", ctl, "link", "set", "switch0", "up")
        for node in NODES:
            self.run("ip", "-n", self.space(node), "link", "set", "lo", "up")

    def inside(self, node, words):
        """`ip netns exec` would hide /sys, which slurmd wants."""
        script = f'hostname {node} && mount --bind {self.folder}/hosts /etc/hosts && exec "$@"'
        return ["nsenter", f"--net=/run/netns/{self.space(node)}", "unshare", "--mount", "--uts", "sh", "-c", script, "sh",
                *(str(word) for word in words)]

    def daemon(self, node, *words):
        log = open(self.folder / f"{node}-{words[0]}.out", "wb")
        self.daemons.append(subprocess.Popen(self.inside(node, words), env=self.environment, stdout=log, stderr=log))
        log.close()

    def start(self, *words):
        return subprocess.Popen(self.inside("ctl", words), env=self.environment, cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def output(self, *words):
        process = self.start(*words)
        text, _ = process.communicate(timeout=120)
        self.code = process.returncode
        return text

    def wait(self, what, is_so, limit=60):
        until = time.monotonic() + limit
        while not is_so():
            if time.monotonic() > until:
                raise RuntimeError(f"no {what}: " + "".join(path.read_text(errors="replace")[-800:] for path in
                                                            [*self.folder.glob("*.out"), *self.folder.glob("*.log")]))
            time.sleep(0.05)

    def processes(self, node):
        space = os.stat(f"/run/netns/{self.space(node)}").st_ino
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.stat(f"/proc/{pid}/ns/net").st_ino == space:
                    yield int(pid)
            except OSError:
                pass

    def strike(self, node):
        """All of a node at once."""
        for pid in self.processes(node):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def end(self):
        for node in NODES:
            for _ in range(2): # one may have been starting
                self.strike(node)
        for daemon in self.daemons:
            daemon.wait()
        for node in NODES:
            subprocess.run(["ip", "netns", "del", self.space(node)], check=False)


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="trireme-slurm-")
        cls.path = pathlib.Path(cls.temporary.name)
        (cls.path / "run.yaml").write_text(CONFIG)
        try:
            cls.cluster = Cluster(cls.path)
        except BaseException:
            cls.clear(cls.path)
            raise

    @classmethod
    def clear(cls, path):
        for space in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=False).stdout.split():
            if space.startswith(f"tri{os.getpid()}-"):
                subprocess.run(["ip", "netns", "del", space], check=False)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.end()
        cls.temporary.cleanup()

    def hash_of(self, text):
        found = re.findall(r"weights: xxh3 (\w+)", text)
        self.assertGreaterEqual(len(found), 1, text)
        return found[-1]

    def alone(self, *words):
        done = subprocess.run([TRIREME, "train", "run.yaml", "--out", "alone", "--overwrite", *words], cwd=self.path, capture_output=True,
                              text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
        return self.hash_of(done.stdout + done.stderr)

    def queue(self, script, run, *words):
        text = self.cluster.output("sbatch", "--parsable", "--output", run + ".log", "--nodes=2", "--ntasks-per-node=2",
                                   EXAMPLES / script, "run.yaml", run, *words)
        self.assertRegex(text, r"^\d+\s*$")
        log = self.path / run / "metrics.jsonl"
        self.cluster.wait(f"step of {run}", lambda: log.exists() and log.read_text().count("\n") > 20)
        return text.strip()

    def log(self, run):
        path = self.path / (run + ".log")
        return path.read_text(errors="replace") if path.exists() else ""

    def end_of(self, run):
        self.cluster.wait(f"end of {run}", lambda: "weights: " in self.log(run), 120)
        return self.hash_of(self.log(run))

    def test_two_nodes_have_the_weights_of_one_process(self):
        text = self.cluster.output("srun", "-N2", "--ntasks-per-node=2", TRIREME, "train", "run.yaml", "--out", "two")
        self.assertEqual(self.cluster.code, 0, text)
        self.assertEqual(self.hash_of(text), self.alone(), text)
        self.assertIn("4 ranks", text)

    def test_a_job_that_is_stopped_saves_and_continues_when_it_is_queued_again(self):
        job = self.queue("train.sbatch", "stopped", LONG)
        self.cluster.output("scancel", "--signal=TERM", job + ".0")
        self.cluster.wait("saving", lambda: "which is saved" in self.log("stopped"))
        self.cluster.wait("queueing", lambda: "the job goes back into the queue" in self.log("stopped"))
        self.assertIn("exit code 143", self.log("stopped"))
        self.assertEqual(self.end_of("stopped"), self.alone(LONG), self.log("stopped"))

    def test_when_a_node_dies_the_workers_on_the_other_continue(self):
        self.queue("elastic.sbatch", "elastic", LONG)
        self.cluster.strike("n1")
        self.assertEqual(self.end_of("elastic"), self.alone(LONG), self.log("elastic"))
        self.assertRegex(self.log("elastic"), r"generation \d+: 2 workers")


if __name__ == "__main__":
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if os.getuid() != 0 or missing:
        print("skipped: needs root" if not missing else f"skipped: there is no {missing[0]}")
        sys.exit(77)
    unittest.main(verbosity=2)
