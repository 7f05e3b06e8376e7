"""Rows of bench/reliability that strike jobs as they run: `trireme chaos` and `trireme ledger` do the work."""
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/process"))
from steps import has_steps  # noqa: E402

CNN = """
model:
  layers:
    - reshape: [8, 8, 2]
    - conv2d: {out: 8, kernel: 3, pad: 1}
    - batch_norm
    - relu
    - flatten
    - dropout: 0.2
    - linear: classes
data: {name: synthetic, synthetic_count: 600, synthetic_width: 128}
train: {batch: 60, epochs: 1000000, steps: STEPS, shards: 8, eval_every: 100, verify_every: 1}
optim: {name: adamw, lr: 0.01, clip_norm: 1}
comm: {timeout_s: 60}
"""
GPT = """
model: {name: gpt2, n_layer: 2, n_head: 2, n_embd: 32, resid_pdrop: 0.1}
data: {name: synthetic, synthetic_tokens: true, classes: 60, synthetic_count: 600, synthetic_width: 24}
train: {batch: 60, epochs: 1000000, steps: STEPS, shards: 8, eval_every: 100, verify_every: 1}
optim: {name: adamw, lr: 0.01, weight_decay: 0.1, clip_norm: 1}
comm: {timeout_s: 60}
"""
MODELS = {"cnn": (CNN, 6000), "gpt": (GPT, 2500)}
FOREVER = 100000000
FAULTS_LEAST = 5  # of a run of the campaign
GAP_MOST_S = 2  # without a step of such a run
MISFITS = ["optim.lr=0.5", "train.seed=7", "train.batch=30", "parallel.sync=zero1", "train.eval_every=3", "comm.encrypt=on", "train.steps=77"]


class Job:
    """A run in the background, in a folder of its own."""

    def __init__(self, args, name, config, steps, *words):
        self.folder, self.name, self.trireme = pathlib.Path(args.scratch), name, args.build / "trireme"
        (self.folder / f"{name}.yaml").write_text(config.replace("STEPS", str(steps)))
        self.log = open(self.folder / f"{name}.txt", "w+")
        self.process = subprocess.Popen([self.trireme, "train", f"{name}.yaml", "--out", name, *words], cwd=self.folder, stdout=self.log,
                                        stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def wait_for_steps(self):
        until = time.monotonic() + 60
        while not has_steps(self.folder / self.name) and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)

    def chaos(self, *words):
        done = subprocess.run([self.trireme, "chaos", self.folder / self.name, "--json", *map(str, words)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if not done.stdout:
            raise SystemExit(f"trireme chaos: {done.stderr}")
        return json.loads(done.stdout)

    def misfit(self, config, word):
        """A newcomer with another configuration, and whether it alone is refused."""
        address = re.search(r"--join (\S+),", self.text())
        done = subprocess.run([self.trireme, "train", config, "--out", self.name, "-n", "1", "--elastic", "1:8", "--join", address.group(1), word],
                              cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        refused = done.returncode == 2 and "cannot join this run" in done.stdout
        return refused or self.process.poll() is not None or "the run is over" in done.stdout

    def ledger(self):
        done = subprocess.run([self.trireme, "ledger", self.folder / self.name, "--json"], stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout) if done.stdout else {"whole": False, "report": "no ledger"}

    def text(self):
        return pathlib.Path(self.log.name).read_text()

    def end(self, ask=None, limit=600):
        if ask:
            self.process.send_signal(ask)
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        found = re.findall(r"weights: xxh3 (\w+)", self.text())
        return self.process.returncode, found[-1] if found else None


def elastic(workers, most=8):
    return ("-n", str(workers), "--elastic", f"1:{most}", "--restarts", "100000", "comm.chaos=on")


def faults(bench, args, counts, *transports):
    """tests/process/faults: its lines of figures, and whether nothing was wrong."""
    lines, good = [], True
    for transport in transports:
        done = subprocess.run([args.build / "tests/process/process_faults", *counts, f"seed={args.seed}", f"transport={transport}"],
                              cwd=args.scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found = re.findall(r"(\d+) faults, (\d+) reports, ms until the call failed: median ([0-9.]+), 90% [0-9.]+, 99% ([0-9.]+)", done.stdout)
        end = re.findall(r"(\d+) hang, (\d+) reports are wrong", done.stdout)
        lines.append((transport, [(int(a), int(b), float(c), float(d)) for a, b, c, d in found], end[0] if end else ("?", "?"), done.stdout))
        good = good and done.returncode == 0
    return lines, good


def told(lines):
    return "; ".join(f"{transport}: {a} faults, median {c:.1f} ms, 99 % {d:.1f} ms, {end[0]} hang, {end[1]} wrong"
                     for transport, found, end, _ in lines for a, b, c, d in found)


def inside_collective(bench, args):
    lines, good = faults(bench, args, [f"kill={200 if args.long else 30}"], "shm", "tcp")
    return told(lines), good and all(c <= 5 and d <= 50 for _, found, _, _ in lines for _, _, c, d in found)


def frozen(bench, args):
    lines, good = faults(bench, args, [f"stop={50 if args.long else 8}"], "shm", "tcp")
    return told(lines), good and all(d <= 400 for _, found, _, _ in lines for _, _, _, d in found)


def quota_set(folder, pids):
    """A tenth of a processor for these, by the cpu controller of cgroup 1."""
    folder.mkdir()
    (folder / "cpu.cfs_period_us").write_text("100000")
    (folder / "cpu.cfs_quota_us").write_text("10000")
    for pid in pids:
        (folder / "cgroup.procs").write_text(str(pid))


def slow_is_alive(bench, args):
    seconds = 3600 if args.long else 20
    lines, good = faults(bench, args, [f"calm={seconds // 2}", "hogs=8"], "shm", "tcp")
    calls = sum(int(n) for _, _, _, text in lines for n in re.findall(r"compute, (\d+) calls", text))
    job = Job(args, "slow", CNN, FOREVER, *elastic(3))
    job.wait_for_steps()
    cgroup = pathlib.Path("/sys/fs/cgroup/cpu", f"chaos-{os.getpid()}")
    ranks = bench.tests_of(args, "launched").ranks_of(job.process.pid)
    try:
        quota_set(cgroup, [ranks[1]])
    except OSError as why:
        job.end(signal.SIGINT)
        raise bench.Skipped(f"no cpu controller of cgroup 1: {why}") from why
    before = job.text().count("generation ")
    time.sleep(seconds / 2)
    evicted = job.text().count("generation ") - before
    job.end(signal.SIGINT)
    cgroup.rmdir()
    return f"8 other programs: {calls} sums right, 0 given up: {good}; one worker of 3 at a tenth of a core for {seconds // 2} s: {evicted} given up", good and evicted == 0


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid):
    return int(re.findall(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[0])


def anonymous(pid):
    return int(re.findall(r"RssAnon:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[0])


def kills_grow(bench, args, job, kills, settled=20):
    """Bytes by which the launcher grows for each kill of a random worker, from the `settled`-th on."""
    launched, draw, launcher = bench.tests_of(args, "launched"), random.Random(args.seed), job.process.pid
    memory = 0
    for number in range(settled + kills):
        if number == settled:
            memory = anonymous(launcher)
        workers = launched.ranks_of(launcher)
        if len(workers) > 1:
            os.kill(workers[draw.choice(sorted(workers))], signal.SIGKILL)
        time.sleep(draw.uniform(0.08, 0.23))
    return (anonymous(launcher) - memory) * 1024 / kills


def zombies_of(pid):
    found = 0
    for one in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        found += fields[0] == "Z" and int(fields[1]) == pid
    return found


def soak(bench, args):
    seconds = 180 if args.long else 45
    shared = set(os.listdir("/dev/shm"))
    job = Job(args, "soak", CNN, FOREVER, *elastic(5), "checkpoint.every_steps=5000", "train.guard_limit=0")  # a repair for each corrupt
    job.wait_for_steps()
    time.sleep(2)
    launcher = job.process.pid
    files, memory, start = open_files(launcher), resident(launcher), time.monotonic()
    root = ",cut" if os.geteuid() == 0 else ""
    seen = job.chaos("--seed", args.seed, "--for", seconds, "--every", 1.5, "--faults", f"kill,stop,slow,full-disk,clock,corrupt,delay{root}")
    time.sleep(3)
    if job.process.poll() is not None:
        return f"the run ended, exit {job.process.returncode}: {job.text()[-1000:]}", False
    grown, slope = open_files(launcher) - files, (resident(launcher) - memory) / 1024 / ((time.monotonic() - start) / 3600)
    zombies = zombies_of(launcher)
    each = kills_grow(bench, args, job, 400 if args.long else 150)
    code, _ = job.end(signal.SIGINT)
    stray = [str(path) for path in (job.folder / "soak").rglob("*.tmp-*")]
    leaks = [name for name in set(os.listdir("/dev/shm")) - shared if "trireme" in name]
    ledger = job.ledger()
    good = (seen["longest_gap_s"] <= 5 and grown <= 0 and zombies == 0 and not stray and not leaks and ledger["whole"] and code == 130
            and not seen["hangs"] and not seen["ended"] and (len(seen["faults"]) >= 100 or not args.long))
    return (f"{len(seen['faults'])} faults in {seen['seconds']:.0f} s ({seen['left_out']} left out), {seen['steps']} steps, longest gap {seen['longest_gap_s']:.2f} s; "
            f"launcher: files {grown:+d}, {slope:+.1f} MB/h, then {each:+.0f} bytes for each of {400 if args.long else 150} kills; {zombies} zombies, {len(stray)} temporary files, {len(leaks)} in /dev/shm; ledger whole: {ledger['whole']}"
            + (f"; exit {code}" if code != 130 else "")), good


def goodput(bench, args):
    seconds, calm = (600, 300) if args.long else (45, 15)
    job = Job(args, "goodput", CNN, FOREVER, *elastic(4))
    job.wait_for_steps()
    time.sleep(2)
    figures, good = [], True
    for every in (30, 15) if args.long else (15,):
        quiet = job.chaos("--schedule", schedule(args, [(calm, "clock 0 0.001")]))
        struck = job.chaos("--schedule", schedule(args, [(at, f"kill #{at}") for at in range(5, seconds, every)] + [(seconds, "clock 0 0.001")]))
        after = job.chaos("--schedule", schedule(args, [(calm, "clock 0 0.001")]))
        rate = (quiet["steps"] + after["steps"]) / (quiet["seconds"] + after["seconds"])
        share = struck["steps"] / struck["seconds"] / rate
        kills = sum(fault["fault"] == "kill" for fault in struck["faults"])
        figures.append(f"each {every} s: {100 * share:.1f} % ({kills} kills)")
        good = good and share >= 0.95
    job.end(signal.SIGINT)
    return "; ".join(figures), good


def schedule(args, rows):
    path = pathlib.Path(args.scratch, "schedule")
    path.write_text("".join(f"{at} {what}\n" for at, what in sorted(rows)))
    return path


def silent_corruption(bench, args):
    count = 1000 if args.long else 40
    code = subprocess.run([args.build / "tests/ranks/train/ranks_train_test_verify"], cwd=args.scratch, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode
    job = Job(args, "flips", CNN, FOREVER, *elastic(4), "train.guard_limit=0")
    job.wait_for_steps()
    seen = job.chaos("--seed", args.seed, "--for", count * 0.12, "--every", 0.1, "--faults", "corrupt")
    time.sleep(1)
    job.end(signal.SIGINT)
    named = job.text().count("repaired from these")
    flips = len(seen["faults"])
    return f"1,050 flips between ranks of one process: {'all repaired' if code == 0 else 'FAILED'}; {flips} in workers of a run: {named} named and repaired", \
        code == 0 and named == flips > 0


def parsers(bench, args):
    if subprocess.run(["which", "clang"], stdout=subprocess.DEVNULL).returncode != 0:
        raise bench.Skipped("no clang")
    amount = ["--inputs", "40000000"] if args.long else ["5"]
    done = subprocess.run([bench.ROOT / "tools/fuzz", *amount], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = {name: int(count) for name, count in re.findall(r"^(\S+)\s+(\d+) inputs, no finding", done.stdout, re.M)}
    least = min(found.values(), default=0)
    figure = f"{len(found)} targets, {sum(found.values())} inputs, least {least}; findings: {'none' if done.returncode == 0 else done.stdout[-500:]}"
    reached = done.returncode == 0 and len(found) >= 8 and (least >= 40e6 or not args.long)
    if not args.long:
        return figure, reached
    lines = subprocess.run([bench.ROOT / "tools/fuzz_coverage"], stdout=subprocess.PIPE, text=True).stdout
    covered = sorted((float(percent), name) for name, percent in re.findall(r"^(\S+)\s+([\d.]+) %", lines, re.M))
    if not covered:
        return f"{figure}; no coverage", False
    return f"{figure}; lines reached: {covered[0][0]} % ({covered[0][1]}) to {covered[-1][0]} %", reached and covered[0][0] >= 90


def ports_of(pids):
    """Where these processes listen on TCP."""
    inodes = set()
    for pid in pids:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}")))
            except OSError:
                pass
    found = set()
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in pathlib.Path(f"/proc/{pids[0]}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] != "0A" or fields[9] not in inodes:
                continue
            host, port = fields[1].split(":")
            raw = b"".join(struct.pack("=I", int(host[i:i + 8], 16)) for i in range(0, len(host), 8))
            found.add((socket.inet_ntop(family, raw).replace("0.0.0.0", "127.0.0.1"), int(port, 16)))
    return sorted(found)


def strange_bytes(draw):
    return draw.choice((
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303") + draw.randbytes(200),
        draw.randbytes(draw.randrange(1, 4096)),
        struct.pack("<Q", 1 << 33), struct.pack("<Q", 1 << 62), struct.pack("<I", 0xffffffff) * 3,
        b"TRIH" + struct.pack("<HHIIII", 2, 1, 1, 0, 2, 1) + draw.randbytes(72),
        struct.pack("<I", 0x31495254) + draw.randbytes(draw.randrange(1, 60)),
    ))


class Strangers(threading.Thread):
    """Who has no token: talk, leave half said, one byte a second; how long they are suffered."""

    def __init__(self, ports, seed, keep):
        super().__init__()
        self.ports, self.draw, self.keep, self.over, self.count, self.answered, self.longest = ports, random.Random(seed), keep, False, 0, 0, 0.0

    def run(self):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)  # elsewhere they would not compute on the job's cores
        held = []
        while not self.over:
            place = self.draw.choice(self.ports)
            try:
                link = socket.create_connection(place, 1)
                link.sendall(strange_bytes(self.draw))
                self.count += 1
                held.append((time.monotonic(), link))
            except OSError:
                time.sleep(0.01)
            while len(held) > self.keep or (held and time.monotonic() - held[0][0] > 6):
                self.look(*held.pop(0))
            time.sleep(0.002)
        for one in held:
            one[1].close()

    def look(self, since, link):
        link.settimeout(0.001)
        try:
            while link.recv(4096):
                self.answered += 1
        except TimeoutError:
            if time.monotonic() - since > 6:
                self.longest = max(self.longest, time.monotonic() - since)
        except OSError:
            pass
        link.close()


def hostile(bench, args):
    launched = bench.tests_of(args, "launched")
    seconds = 60 if args.long else 10
    job = Job(args, "hostile", CNN, FOREVER, *elastic(3), "comm.transport=tcp")
    job.wait_for_steps()
    pids = [job.process.pid, *launched.ranks_of(job.process.pid).values()]
    ports = ports_of(pids)
    if not ports:
        job.end(signal.SIGINT)
        raise SystemExit("row 19: nobody listens")
    quiet = job.chaos("--schedule", schedule(args, [(seconds, "clock 0 0.001")]))
    memory = sum(map(resident, pids))
    strangers = Strangers(ports, args.seed, 1000)
    strangers.start()
    loud = job.chaos("--schedule", schedule(args, [(seconds, "clock 0 0.001")]))
    grown = (sum(map(resident, pids)) - memory) / 1024
    strangers.over = True
    strangers.join()
    token = launched.environment_of(pids[1])["TRIREME_TOKEN"]
    shown = token in job.text() or any(token in pathlib.Path(f"/proc/{pid}/cmdline").read_text() for pid in pids)
    generations = job.text().count("generation ")
    code, _ = job.end(signal.SIGINT)
    whole = job.ledger()["whole"]
    slower = 100 * (quiet["steps"] / quiet["seconds"] / (loud["steps"] / loud["seconds"]) - 1)
    good = slower <= 5 and grown <= 16 and not shown and code == 130 and whole and strangers.longest == 0 and generations == 0
    return (f"{strangers.count} strangers at {len(ports)} ports, {strangers.answered} got a greeting that needs a token to be answered, "
            f"{'all dropped within 6 s' if strangers.longest == 0 else f'one held {strangers.longest:.0f} s'}; steps {slower:+.1f} %, memory {grown:+.1f} MB, "
            f"token shown: {shown}, workers given up: {generations}, ledger whole: {whole}"), good


def launcher_starts_nothing(launcher, seconds):
    """The launcher has no file descriptor to spare for so long, so that it can start no worker in place of one that died."""
    soft, hard = resource.prlimit(launcher, resource.RLIMIT_NOFILE)
    try:
        resource.prlimit(launcher, resource.RLIMIT_NOFILE, (min(soft, open_files(launcher)), hard))
        time.sleep(seconds)
        resource.prlimit(launcher, resource.RLIMIT_NOFILE, (soft, hard))
    except OSError:
        pass  # the run is over


def campaign_faults(draw):
    """Not full-disk, which a run says at its end when it has it there, and not corrupt, which wants a majority to be left."""
    kinds = ["kill", "kill", "stop", "slow", "fail"] + (["cut", "loss", "link"] if os.geteuid() == 0 else [])
    rows, at = [], 0.0
    for _ in range(draw.randint(FAULTS_LEAST, 10)):
        at += draw.uniform(0.05, 0.8)
        kind = draw.choice(kinds)
        rows.append((round(at, 3), f"{kind} #{draw.randrange(1000)}" + ("" if kind in ("kill", "fail") else f" {draw.uniform(0.1, 1.2):.2f}")))
    return rows


def campaign_run(bench, args, model, number):
    """One run: the job after its end, what `trireme chaos` told, and whether a newcomer that does not fit was refused."""
    config, steps = MODELS[model]
    draw, launched = random.Random(f"{args.seed} {model} {number}"), bench.tests_of(args, "launched")
    workers, transport = draw.choice((3, 4, 5)), draw.choice(("auto", "tcp"))
    os.environ["TRIREME_TOKEN"] = f"campaign-of-seed-{args.seed}"
    job = Job(args, f"{model}-{number}", config, args.steps or steps, *elastic(workers), "--listen", "127.0.0.1", f"comm.transport={transport}")
    job.wait_for_steps()
    rows, word, refused = campaign_faults(draw), draw.choice(MISFITS), []
    misfit = threading.Thread(target=lambda: refused.append(job.misfit(f"{job.name}.yaml", word)))
    pause, length = draw.uniform(0.2, 3), draw.uniform(0.3, 1)
    starved = threading.Timer(pause, launcher_starts_nothing, (job.process.pid, length))
    strangers = None
    if draw.random() < 0.5:
        strangers = Strangers(ports_of([job.process.pid, *launched.ranks_of(job.process.pid).values()]), number, 100)
        strangers.start()
    misfit.start()
    starved.start()
    seen = job.chaos("--schedule", schedule(args, rows))
    starved.join()
    misfit.join()
    if strangers:
        strangers.over = True
        strangers.join()
    return job, seen, refused[0]


def campaign(bench, args):
    """Runs with 5 to 10 faults at random moments, a newcomer that does not fit, a launcher that cannot start anybody for a moment, and strangers in half of
    them: each to the hash of the quiet run and a whole ledger; one that is over before the fifth fault is not counted."""
    good, text = True, []
    if args.model and args.model not in MODELS:
        raise SystemExit(f"bench/reliability campaign: --model: want {' or '.join(MODELS)}, got {args.model}")
    for model in (args.model,) if args.model else tuple(MODELS):
        config, steps = MODELS[model]
        steps = args.steps or steps
        code, quiet = Job(args, f"{model}-quiet", config, steps, "-n", "2").end()
        if code != 0:
            raise SystemExit(f"bench/reliability campaign: the quiet run of {model} itself ended with exit code {code}")
        ended, struck, counted, number, gaps = 0, 0, 0, -1, []
        while counted < args.runs and number < 4 * args.runs:
            number += 1
            job, seen, refused = campaign_run(bench, args, model, number)
            code, weights = job.end()
            ledger, gap = job.ledger(), seen["longest_gap_s"]
            right, enough = code == 0 and refused and weights == quiet and ledger["whole"] and ledger["end"] == steps, len(seen["faults"]) >= FAULTS_LEAST
            counted, good = counted + (enough or not right), good and right and gap <= GAP_MOST_S
            ended, struck = ended + (enough and right), struck + enough * len(seen["faults"])
            gaps += [gap] * enough
            print(f"  {model} run {number}: {len(seen['faults'])} faults, {'as the quiet run' if right else 'NOT as the quiet run'}, {gap:.2f} s without a step"
                  + ("" if enough else "; over before its faults, not counted"), flush=True)
            if not right or gap > GAP_MOST_S:
                kept = pathlib.Path(f"/tmp/trireme-campaign-{model}-{args.seed}-{number}")
                subprocess.run(["cp", "-r", job.folder, kept])
                text.append(f"{model} run {number}: exit {code}, weights {weights}, want {quiet}; misfit refused: {refused}; {gap:.2f} s without a step; "
                            f"ledger: {ledger['report'] or ledger}; kept in {kept}")
        good = good and counted >= args.runs
        text.append(f"{model}: {ended} of {counted} runs with {struck} faults ended with the weights of the quiet run and a whole ledger; longest time without a step "
                    f"{max(gaps, default=0):.2f} s, {sum(gap > GAP_MOST_S for gap in gaps)} runs above {GAP_MOST_S} s")
    return "; ".join(text), good


ROWS = {
    1: ("a crash in a collective", "4 ranks, shm and tcp, kill at random moments: all others name the rank, median 5 ms, 99 % 50 ms, 0 hang, 0 wrong", inside_collective),
    2: ("a frozen rank", "4 ranks, shm and tcp, SIGSTOP: named within 400 ms; when it goes on it learns that it was given up", frozen),
    4: ("slow is not dead", "8 programs that compute beside 4 ranks; one worker of 3 at a tenth of a core: nobody is given up, 0 wrong sums", slow_is_alive),
    8: ("chaos soak", "--long: 100 faults in 3 min; longest gap 5 s; no files, shared memory, temporary files, zombies left; the ledger is whole", soak),
    9: ("goodput", "a kill each 15 s (--long: and each 30 s), replaced at once: 95 % of the steps of quiet times before and after", goodput),
    17: ("silent corruption", "each flipped bit of a replica's weights is found in the next step, named, repaired", silent_corruption),
    18: ("parsers", "tools/fuzz: 8 targets and more, no finding; --long: 40 million inputs each, and they reach 90 % of the lines of each parser", parsers),
    19: ("hostile network", "strangers on all ports while a job trains: steps 5 % slower at most, 16 MB, dropped, no token shown", hostile),
}


def add(bench):
    """Registers the rows above with bench/reliability."""
    for number, (name, target, function) in ROWS.items():
        bench.row(number, name, target)(lambda args, function=function: function(bench, args))
