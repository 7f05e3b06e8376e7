"""Rows of bench/reliability about launchers, stores and hosts: 3 (partitions), 6 (growing), 7 (coordinators that die), 23 (one link between hosts).

Hosts are network namespaces of this machine, joined by a bridge; they and everything in them go at the end, whatever happens.
"""
import itertools
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import time

FOREVER = [f"train.{name}=100000000" for name in ("steps", "epochs", "eval_every")]
PREFIX = f"trirel{os.getpid()}"
NET = "198.18.77"


def shell(*words, check=True):
    return subprocess.run([str(word) for word in words], check=check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def in_host(i):
    return ["nsenter", f"--net=/run/netns/{PREFIX}h{i}"]


class Hosts:
    """Namespaces h0, h1, ... with addresses 198.18.77.1, .2, ..."""

    def __init__(self, count, skipped):
        self.names = [f"{PREFIX}br"] + [f"{PREFIX}h{i}" for i in range(count)]
        if os.geteuid() != 0 or not shell("ip", "netns", "add", self.names[0], check=False):
            raise skipped("no right to make network namespaces")
        shell("ip", "-n", self.names[0], "link", "add", "br0", "type", "bridge")
        shell("ip", "-n", self.names[0], "link", "set", "br0", "up")
        for i, name in enumerate(self.names[1:]):
            shell("ip", "netns", "add", name)
            shell("ip", "link", "add", "veth0", "netns", name, "type", "veth", "peer", "name", f"p{i}", "netns", self.names[0])
            shell("ip", "-n", self.names[0], "link", "set", f"p{i}", "master", "br0")
            shell("ip", "-n", self.names[0], "link", "set", f"p{i}", "up")
            shell("ip", "-n", name, "addr", "add", f"{NET}.{i + 1}/24", "dev", "veth0")
            shell("ip", "-n", name, "link", "set", "veth0", "up")
            shell("ip", "-n", name, "link", "set", "lo", "up")

    def cut(self, i, how):
        """both: nothing passes; in, out: nothing comes to host i, or leaves it; port: its port at the switch is down."""
        if how == "port":
            shell("ip", "-n", self.names[0], "link", "set", f"p{i}", "down")
            return
        shell(*in_host(i), "nft", "add", "table", "inet", "cut")
        for hook in ("input", "output"):
            if how in ("both", hook[:-3]):
                shell(*in_host(i), "nft", f"add chain inet cut {hook} {{ type filter hook {hook} priority 0; }}")
                shell(*in_host(i), "nft", f"add rule inet cut {hook} {'iif' if hook == 'input' else 'oif'} veth0 drop")

    def cut_link(self, i, j):
        """Nothing passes between hosts i and j; heal(i, "link") undoes it."""
        shell(*in_host(i), "nft", "add", "table", "inet", "cut")
        for hook, side in (("input", "saddr"), ("output", "daddr")):
            shell(*in_host(i), "nft", f"add chain inet cut {hook} {{ type filter hook {hook} priority 0; }}")
            shell(*in_host(i), "nft", f"add rule inet cut {hook} ip {side} {NET}.{j + 1} drop")

    def cut_all_but(self, i, port):
        """Host i reaches this port alone, and answers of it."""
        shell(*in_host(i), "nft", "add", "table", "inet", "cut")
        for hook, side in (("input", "sport"), ("output", "dport")):
            shell(*in_host(i), "nft", f"add chain inet cut {hook} {{ type filter hook {hook} priority 0; }}")
            shell(*in_host(i), "nft", f"add rule inet cut {hook} {'iif' if hook == 'input' else 'oif'} veth0 tcp {side} != {port} drop")

    def heal(self, i, how):
        if how == "port":
            shell("ip", "-n", self.names[0], "link", "set", f"p{i}", "up")
        else:
            shell(*in_host(i), "nft", "delete", "table", "inet", "cut")

    def end(self):
        for name in self.names:
            shell("ip", "netns", "del", name, check=False)


def line_after(run, start, words, limit, since=0):
    """Seconds from start until a line with these words, after the first `since` lines; None: none came in time."""
    until = time.monotonic() + limit
    while True:
        for at, line in run.lines[since:]:
            if at >= start and re.search(words, line):
                return at - start
        if time.monotonic() > until or not run.is_running():
            return None
        time.sleep(0.001)


def finish(args, elastic, run):
    """Stops a run and goes on with one process for 20 steps: has it the weights of a run that nothing happened to?"""
    run.process.send_signal(signal.SIGINT)
    run.end()
    found = re.findall(r"stopped by a signal after step (\d+), which is saved", run.text())
    if not found:
        return f"it did not stop in order: {run.text()[-300:]}"
    steps = int(found[-1]) + 20
    words = [f"train.steps={steps}", *FOREVER[1:]]
    hashes = []
    for name, more in (("run", ["--resume", run.name]), ("alone", [])):
        one = elastic.Run(args.scratch, name, *more, *words)
        one.end()
        hashes += re.findall(r"weights: xxh3 (\w+)", one.text())
    logged = (pathlib.Path(args.scratch) / "run/metrics.jsonl").read_text().count('"loss"')
    return "" if len(hashes) == 2 and hashes[0] == hashes[1] and logged == steps else f"weights {hashes}, {logged} of {steps} steps"


def limits(found, limit):
    times = [one if one is not None else 99.0 for one in found]
    return f"{statistics.median(times) * 1000:.0f} ms (at most {max(times) * 1000:.0f})", max(times) <= limit


def add(row, skipped, tests_of):
    @row(3, "partitions", "2 hosts, heartbeat 100 ms, cut both ways, one way, port down: both sides know in 500 ms, the minority stops, one run, whole again 2 s after")
    def partition(args):
        elastic, draw = tests_of(args, "elastic"), random.Random(args.seed)
        pathlib.Path(args.scratch, "run.yaml").write_text(elastic.CONFIG)
        hosts = Hosts(2, skipped)
        os.environ["TRIREME_TOKEN"] = f"token-of-row-3-seed-{args.seed}"
        known, other, healed, seen = [], [], [], []
        try:
            words = ["--elastic", "1:8", "comm.heartbeat_ms=100", *FOREVER]
            main = elastic.Run(args.scratch, "run", "-n", "2", "--listen", f"{NET}.1", *words, before=in_host(0))
            main.wait_for("ranks, run folder")
            address = re.search(r"--join (\S+),", main.text()).group(1)
            guest = elastic.Run(args.scratch, "run", "-n", "1", "--join", address, *words, before=in_host(1))
            main.wait_for("3 workers")
            kinds = list(itertools.chain(*[[how] * (30 if args.long else 3) for how in ("both", "in", "out", "port")]))
            draw.shuffle(kinds)
            for how in kinds:
                time.sleep(0.5 + draw.random())
                marks = len(main.lines), len(guest.lines)
                start = time.monotonic()
                hosts.cut(1, how)
                known.append(line_after(main, start, r"is gone|nothing heard|lost|not heard", 10, marks[0]))
                other.append(line_after(guest, start, r"is gone|nothing heard|lost|not heard", 10, marks[1]))
                line_after(main, start, r": resumed, step", 10, marks[0])
                time.sleep(draw.random())
                mark, start = len(main.lines), time.monotonic()
                hosts.heal(1, how)
                healed.append(line_after(main, start, r"generation \d+: 3 workers", 30, mark))
            seen = re.findall(r"generation (\d+): \d+ workers", main.text() + guest.text())
            wrong = finish(args, elastic, main)
            guest.end()
        finally:
            hosts.end()
        texts = [limits(known, 0.5), limits(other, 0.5), limits(healed, 2)]
        twice = len(seen) - len(set(seen))
        return (f"{len(kinds)} cuts: known {texts[0][0]}, by the other side {texts[1][0]}, whole again {texts[2][0]}, generations made twice {twice}, "
                f"{wrong or 'weights of one process, each step once'}", all(good for _, good in texts) and twice == 0 and not wrong)

    @row(23, "one link between hosts", "3 hosts, heartbeat 100 ms, the link between two is cut: the others make a step within 2 s, whole again 5 s after it heals; "
         "a newcomer that reaches the store's port alone: nobody stands still for 1 s, it names what it cannot reach, and joins 5 s after that heals")
    def one_link(args):
        elastic, draw = tests_of(args, "elastic"), random.Random(args.seed)
        pathlib.Path(args.scratch, "run.yaml").write_text(elastic.CONFIG)
        hosts = Hosts(4, skipped)
        os.environ["TRIREME_TOKEN"] = f"seed-{args.seed}-of-row-23"
        gaps, healed, named, wrong = [], [], 0, ""
        try:
            words = ["--elastic", "1:8", "comm.heartbeat_ms=100", "comm.ports=40000-40100", *FOREVER]
            main = elastic.Run(args.scratch, "run", "-n", "1", "--listen", f"{NET}.1", *words, before=in_host(0))
            main.wait_for("ranks, run folder")
            address = re.search(r"--join (\S+),", main.text()).group(1)
            others = [elastic.Run(args.scratch, "run", "-n", "1", "--join", address, *words, before=in_host(i)) for i in (1, 2)]
            main.wait_for("3 workers")
            for _ in range(10 if args.long else 3):
                time.sleep(1 + draw.random())
                mark, start = len(main.lines), time.monotonic()
                hosts.cut_link(1, 2)
                gaps.append(line_after(main, start, r": resumed, step", 20, mark))
                time.sleep(1 + draw.random())
                named += "is left out of generation" in "".join(run.text() for run in (main, *others))
                mark, start = len(main.lines), time.monotonic()
                hosts.heal(1, "link")
                healed.append(line_after(main, start, r"generation \d+: 3 workers", 30, mark))
            hosts.cut_all_but(3, address.rsplit(":", 1)[1])
            mark, made = len(main.lines), []
            newcomer = elastic.Run(args.scratch, "run", "-n", "1", "--join", address, *words, before=in_host(3))
            newcomer.wait_for("cannot reach worker", limit=20)
            for _ in range(10):
                made.append((pathlib.Path(args.scratch) / "run/metrics.jsonl").stat().st_size)
                time.sleep(1)
            still = any(later == before for before, later in zip(made, made[1:])) or any("generation" in line for _, line in main.lines[mark:])
            told = "ports 40000-40100" in newcomer.text()
            mark, start = len(main.lines), time.monotonic()
            hosts.heal(3, "port alone")
            joined = line_after(main, start, r"generation \d+: 4 workers", 30, mark)
            wrong = finish(args, elastic, main)
            for run in (*others, newcomer):
                run.end()
        finally:
            hosts.end()
        texts = [limits(gaps, 2), limits(healed, 5), limits([joined], 5)]
        return (f"{len(gaps)} cuts: next step {texts[0][0]}, whole again {texts[1][0]}, {named} named; newcomer: {'the others stood still' if still else 'nobody stood still'}, "
                f"ports {'named' if told else 'NOT named'}, joined {texts[2][0]}; {wrong or 'weights of one process, each step once'}",
                all(good for _, good in texts) and named == len(gaps) and told and not still and not wrong)

    @row(6, "growing", "3 workers become 4, 50 MB of state: in within 1 s of asking, the others held up 200 ms at most, weights of one process")
    def grow(args):
        elastic = tests_of(args, "elastic")
        config = "model: {name: mlp, hidden: [2048, 2000]}\ndata: {name: synthetic, synthetic_count: 64, synthetic_width: 32}\n" \
                 "train: {batch: 8, shards: 8}\noptim: {name: adamw, lr: 0.001}\n"
        pathlib.Path(args.scratch, "run.yaml").write_text(config)
        run = elastic.Run(args.scratch, "run", "-n", "4", "--elastic", "1:4", "--restarts", "1000", *FOREVER)
        run.wait_for_steps()
        asked, paused = [], []
        for _ in range(20 if args.long else 5):
            mark, start = len(run.lines), time.monotonic()
            run.signal(3, signal.SIGKILL)
            if line_after(run, start, r": resumed, step", 20, mark) is None or line_after(run, start, r"is rank \d+ of generation", 20, mark) is None:
                break
            time.sleep(1)
            text = "".join(line for _, line in run.lines[mark:])
            asked += [float(ms) / 1000 for ms in re.findall(r"is rank \d+ of generation \d+, (\d+) ms", text)]
            paused += [float(ms) / 1000 for ms in re.findall(r"generation \d+: resumed, step \d+ is done (\d+) ms", text)[-1:]]
        wrong = finish(args, elastic, run)
        texts = [limits(asked or [None], 1), limits(paused or [None], 0.2)]
        return (f"{len(asked)} times: in after {texts[0][0]}, the others held up {texts[1][0]}, {wrong or 'weights of one process'}",
                all(good for _, good in texts) and not wrong)

    @row(7, "coordinators die", "the launcher (own store; etcd), a worker while it is gone, back after 0, 10 (--long: 60) s: goes on without, serves 2 s after its start, no step lost")
    def coordinator(args):
        elastic = tests_of(args, "elastic")
        from launched import workers_in
        pathlib.Path(args.scratch, "run.yaml").write_text(elastic.CONFIG)
        folder, back, steps, wrong = pathlib.Path(args.scratch), [], [], []

        def count():
            return (folder / "run/metrics.jsonl").read_text().count('"loss"')

        def strike(run, pause, restart, killed):
            """Kills, looks whether steps are made, kills a worker, and comes back."""
            killed()
            before = count()
            time.sleep(1.2 + pause)  # lines of steps come once a second
            steps.append(count() - before)
            victim = max(workers_in(folder).items())
            os.kill(victim[1], signal.SIGKILL)
            start = time.monotonic()
            run = restart()
            back.append(line_after(run, start, r": resumed, step", 60))
            return run

        def case(words, etcd):
            run = elastic.Run(args.scratch, "run", "-n", "3", "--elastic", "1:8", "--restarts", "100", *words, *FOREVER)
            run.wait_for_steps()
            for pause in (0, 10, 60) if args.long else (0, 10):
                def kill_launcher(run=run):
                    run.process.kill()
                    run.end()
                run = strike(run, pause, lambda: elastic.Run(args.scratch, "run", "--attach", "run"), kill_launcher)
                run.wait_for("3 workers")
                if etcd:
                    def start_etcd(run=run):
                        etcd.processes[0] = etcd.start(0)
                        return run
                    run = strike(run, pause, start_etcd, lambda: etcd.kill(0))
                    line_after(run, time.monotonic(), r"3 workers", 20)
                time.sleep(1)
            why = finish(args, elastic, run)
            if why:
                wrong.append(why)
            subprocess.run(["rm", "-rf", folder / "run", folder / "alone"], check=True)

        case([], None)
        cluster = None
        try:
            import shutil
            if shutil.which("etcd"):
                etcd = tests_of(args, "etcd")
                cluster = etcd.Etcd(folder, 1)
                cluster.wait()
                case(["--store", cluster.url()], cluster)
        finally:
            if cluster:
                cluster.end()
        text, good = limits(back, 2)
        return (f"{len(back)} deaths{'' if cluster else ' (no etcd here)'}: at least {min(steps)} steps without it, a worker made up for after {text}, "
                f"{'; '.join(wrong) or 'weights of one process, each step once'}", good and min(steps) > 0 and not wrong)
