"""A worker of two is killed, and a host of two: from kill -9 until the next step, here and under torchrun, on the same model.

Systems take turns: each round starts a job of each, strikes it a few times at random moments, and ends it. torchrun's workers are those of
bench/peer_torchrun.py; what counts is the first step that processes make which were not there at the kill, since those that were are ended. Ours
go on with those that are left, so there are two figures: until their next step, and until both workers have made one again.
"""
import importlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import time

from reliability_hosts import NET, Hosts, in_host

PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's torch
PEER = pathlib.Path(__file__).resolve().parent / "peer_torchrun.py"
BATCH = 128  # of each worker
CONFIG = """
model: MODEL
data: {name: fashion-mnist, test_limit: 8}
train: {batch: BATCH, epochs: 100000000, eval_every: 100000000}
optim: {name: sgd, lr: 0.05, momentum: 0.9}
"""
MODELS = {"mlp": "{name: mlp, hidden: [512, 256]}", "cnn": "{name: cnn}"}
LIMIT = 120


def kill_now(*pids):
    start = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return start


class Ours:
    """trireme train with --elastic; a launcher each on two hosts, or one with --restarts."""

    def __init__(self, args, name, model, hosts):
        self.args, self.name, self.elastic = args, name, args.tests_of(args, "elastic")
        self.workers_in = importlib.import_module("launched").workers_in
        self.hosts, self.guest = hosts, None
        os.environ["TRIREME_TOKEN"] = f"token-of-torchrun-row-seed-{args.seed}"
        pathlib.Path(args.scratch, "run.yaml").write_text(CONFIG.replace("MODEL", MODELS[model]).replace("BATCH", str(2 * BATCH)))
        more = ["-n", "1", "--listen", f"{NET}.1"] if hosts else ["-n", "2", "--restarts", "100000"]
        self.run = self.elastic.Run(args.scratch, name, "--elastic", "1:2", *more, before=in_host(0) if hosts else ())
        self.run.wait_for_steps()
        self.join()

    def join(self):
        if self.hosts:
            where = re.search(r"--join (\S+),", self.run.text()).group(1)
            self.guest = self.elastic.Run(self.args.scratch, self.name, "--elastic", "1:2", "-n", "1", "--join", where, before=in_host(1))
            self.run.wait_for("2 workers")

    def after(self, mark, start, workers):
        """Seconds until the first step of a generation of so many workers or more, called after line mark."""
        until, called = time.monotonic() + LIMIT, {}
        while time.monotonic() < until and self.run.is_running():
            for at, line in self.run.lines[mark:]:
                for number, count in re.findall(r"generation (\d+): (\d+) worker", line):
                    called[number] = int(count)
                made = re.search(r"generation (\d+): resumed, step", line)
                if made and called.get(made.group(1), 0) >= workers:
                    return at - start
            time.sleep(0.001)
        raise SystemExit(f"torchrun: ours does not continue:\n{self.run.text()[-2000:]}")

    def strike(self, draw):
        """Seconds until the next step, whole steps lost, seconds until both are at work."""
        mark, workers = len(self.run.lines), self.workers_in(self.args.scratch)
        if self.hosts:
            guest = self.elastic.ranks_of(self.guest.process.pid)
            start = kill_now(self.guest.process.pid, *guest.values())
            found = self.after(mark, start, 1)
            self.guest.end()
            mark = len(self.run.lines)
            self.join()
            self.after(mark, start, 2)
            return [found, 0]
        start = kill_now(draw.choice(sorted(workers.values())))
        return [self.after(mark, start, 1), 0, self.after(mark, start, 2)]

    def end(self):
        for run in filter(None, (self.guest, self.run)):
            run.process.kill()
        for pid in self.workers_in(self.args.scratch).values():
            os.kill(pid, signal.SIGKILL)
        for run in filter(None, (self.guest, self.run)):
            run.end()

    def step_ms(self):
        log = pathlib.Path(self.args.scratch, self.name, "metrics.jsonl").read_text()
        return 2 * BATCH / statistics.median(map(float, re.findall(r'"samples_per_s": ?([0-9.]+)', log))) * 1e3


class Torchrun:
    """An agent with two workers, or one of one worker on each of two hosts."""

    def __init__(self, args, name, model, hosts, interval):
        self.folder = pathlib.Path(args.scratch, name)
        self.folder.mkdir()
        self.hosts, self.interval, self.model = hosts, interval, model
        self.log = open(self.folder / "log", "w")
        self.agents = [self.agent(i) for i in range(2 if hosts else 1)]
        self.wait(set())

    def agent(self, i):
        words = ["--max_restarts", "100000", "--monitor_interval", str(self.interval)]
        before, env = [], {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "veth0" if self.hosts else "lo"}
        if self.hosts:  # its workers meet at the name of a host: that is its address here
            words += ["--nnodes", "1:2", "--nproc_per_node", "1", "--rdzv_backend", "c10d", "--rdzv_endpoint", f"{NET}.1:29400", "--rdzv_id", "1"]
            before = [*in_host(i), "unshare", "--uts", "sh", "-c", f'hostname {NET}.{i + 1} && exec "$@"', "sh"]
        else:
            words += ["--standalone", "--nproc_per_node", "2"]
        return subprocess.Popen([*before, PYTHON, PEER, "agent", *words, "--", self.model, str(BATCH), self.folder], env=env, cwd=self.folder,
                                stdout=self.log, stderr=subprocess.STDOUT)

    def steps(self):
        try:
            lines = (self.folder / "steps").read_text().split("\n")[:-1]
        except FileNotFoundError:
            return []
        return [(int(pid), int(step), float(at)) for pid, step, at in map(str.split, lines)]

    def wait(self, old, count=1):
        """The first step of processes that are not these, once so many of them have made one."""
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            found = [one for one in self.steps() if one[0] not in old]
            if len({one[0] for one in found}) >= count:
                return found[0]
            time.sleep(0.005)
        raise SystemExit(f"torchrun makes no step in {LIMIT} s:\n{(self.folder / 'log').read_text()[-2000:]}")

    def workers(self):
        return [pid for pid in sorted({pid for pid, _, _ in self.steps()}) if pathlib.Path(f"/proc/{pid}").exists()]

    def strike(self, draw):
        """Seconds until the next step, and whole steps lost."""
        before = self.steps()
        victim, old = draw.choice(self.workers()), {pid for pid, _, _ in before}
        if self.hosts:
            agent = self.agents.pop()
            victim = next(pid for pid in self.workers() if self.parent(pid) == agent.pid)
            start = kill_now(agent.pid, victim)
            agent.wait()
        else:
            start = kill_now(victim)
        _, step, at = self.wait(old)
        return [at - start, max(one[1] for one in before) + 1 - step]

    @staticmethod
    def parent(pid):
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])

    def end(self):
        workers = self.workers()
        for agent in self.agents:
            agent.kill()
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        for agent in self.agents:
            agent.wait()
        self.log.close()

    def step_ms(self):
        steps, pid = self.steps(), self.steps()[0][0]
        times = [at for one, _, at in steps if one == pid]
        return statistics.median(b - a for a, b in zip(times, times[1:])) * 1e3


SYSTEMS = {
    "trireme": (Ours, (), 5),
    "torchrun, --monitor_interval 0.1": (Torchrun, (0.1,), 4),
    "torchrun": (Torchrun, (5,), 3),
}
HOST_SYSTEMS = {"trireme": (Ours, (), 3), "torchrun": (Torchrun, (5,), 1)}


def told(times):
    return f"{statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f} of {len(times)})"


def piece(args, model, hosts, found):
    """One round: each system is started, struck, ended."""
    draw = random.Random(args.seed)
    for number, (name, (system, words, strikes)) in enumerate((HOST_SYSTEMS if hosts else SYSTEMS).items()):
        job = system(args, f"job{number}", model, hosts, *words)
        try:
            for _ in range(strikes):
                time.sleep(0.5 + draw.random())
                found.setdefault(name, []).append(job.strike(draw))
            found.setdefault(f"{name}: ms of a step", []).append(job.step_ms())
        finally:
            job.end()


def figures(found):
    text = []
    for name in filter(lambda name: ": ms" not in name, found):
        times = list(zip(*found[name]))
        both = f", both at work again {told(times[2])}" if len(times) > 2 else ""
        text.append(f"{name}: {told(times[0])}{both}, {statistics.mean(times[1]):.0f} steps made again, a step is {statistics.median(found[name + ': ms of a step']):.0f} ms")
    return "; ".join(text)


def beside_torchrun(skipped, tests_of, args):
    """A round of each model; with --pieces FILE the times of other calls count, too."""
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode != 0 or not shutil.which("nsenter"):
        raise skipped("no torch for /usr/bin/python3")
    if args.model and args.model not in MODELS:
        raise SystemExit(f"bench/reliability torchrun: --model: want {' or '.join(MODELS)}, got {args.model}")
    args.tests_of = tests_of
    kept = json.loads(args.pieces.read_text()) if args.pieces and args.pieces.exists() else {}
    hosts = Hosts(2, skipped) if args.hosts else None
    text, good = [], True
    try:
        for model in (args.model,) if args.model else tuple(MODELS):
            found = kept.setdefault(f"{model}{', a host of two' if hosts else ''}", {})
            piece(args, model, hosts, found)
            ours = statistics.median(times[0] for times in found["trireme"])
            peer = statistics.median(times[0] for times in found["torchrun"])
            good = good and ours < (1 if hosts else 0.3) and ours < peer
            text.append(f"{model}{', a host' if hosts else ''}: {figures(found)}")
    finally:
        if hosts:
            hosts.end()
    if args.pieces:
        args.pieces.write_text(json.dumps(kept))
    return "\n           ".join(text), good
