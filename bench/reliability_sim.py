"""Whole elastic jobs on virtual time, a seed each (docs/measuring.md#simulate-recovery): bench/reliability simulated."""
import os
import re
import subprocess
import sys
import threading

PROCESSES = min(2, os.cpu_count())
# Workers, seeds, --layout: states that lie whole with each worker and spread over them; then many workers.
CAMPAIGNS = [(64, 1000, "all"), (1024, 20, "data")]
LONG = 10


def follow(process, name):
    """What it says of how far it is."""
    for line in process.stderr:
        print(f"  {name}: {line.strip()}", file=sys.stderr, flush=True)


def start(args, ranks, layout, first, seeds):
    words = [args.build / "trireme", "sim", "recovery", "--ranks", str(ranks), "--layout", layout, "--first", str(first), "--seeds", str(seeds)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    threading.Thread(target=follow, args=(process, f"{ranks} workers, seeds from {first}"), daemon=True).start()
    return process


def one(args, ranks, seeds, layout):
    """All seeds, shared out among processes: what failed, and the figures of all."""
    each, failed, counts = -(-seeds // PROCESSES), [], [0] * 5
    processes = [start(args, ranks, layout, args.seed + k * each, min(each, seeds - k * each)) for k in range(PROCESSES)]
    for process in processes:
        text = process.stdout.read()
        process.wait()
        for seed, why in re.findall(r"^seed (\d+): (.*)", text, re.M):
            failed.append(seed)
            print(f"  seed {seed}: {why}\n  replay: trireme sim recovery --ranks {ranks} --layout {layout} --first {seed} --seeds 1 --verbose", flush=True)
        found = re.search(r"(\d+) seeds of \d+ workers: (\d+) generations, (\d+) killed, (\d+) stopped, (\d+) links cut", text)
        if not found or (process.returncode != 0 and not failed):
            raise SystemExit(f"sim recovery of {ranks} workers ended with {process.returncode}:\n{text[-2000:]}")
        counts = [a + int(b) for a, b in zip(counts, found.groups())]
    return "{} seeds of {} workers: {} generations, {} kills, {} stops, {} cuts, {} failed".format(counts[0], ranks, *counts[1:], len(failed)), not failed


def simulated(args):
    before = os.times()
    found = [one(args, ranks, seeds * (LONG if args.long else 1), layout) for ranks, seeds, layout in CAMPAIGNS]
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return "; ".join(text for text, _ in found) + f"; {spent / 60:.1f} min of a core", all(good for _, good in found)
