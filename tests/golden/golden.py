#!/usr/bin/env python3
"""The weights that configurations give in many layouts, against the hashes of cases.txt.

usage: golden.py TRIREME [--accept [--into FILE]] [--fake | --cuda] [--layouts] [KEY=VALUE ...] [NAME ...]

--fake trains on the fake device, whose memory the host cannot touch: the weights must be those of the table.
--cuda trains on train.device=cuda with a table of its own, tests/gpu/expected/train.txt: on a card, or on the emulator where
LD_LIBRARY_PATH has its libcuda.so.1.
--layouts compares the layouts of each block with its one process, whatever the table says. KEY=VALUE: options of all runs.
--accept writes the hash of one process of each block (and of each line with hashes of its own) into cases.txt: a change
of bits shows in the difference of that file, and CHANGELOG.md has to name it. --into: into FILE, after each of these runs.
NAME: only the blocks of these names.

Blocks run side by side, one for each processor. GOLDEN in the table is this folder. Two words run more than one command:
  resume STEP FLAGS : FLAGS   the first flags up to STEP, then --resume with the others
  killed COUNT FLAGS          up to COUNT workers are killed, each when the run has made more steps than at the last kill
A line that begins with "long" runs only where TRIREME_TEST_ALL is set (make test-all).
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

TABLE = pathlib.Path(__file__).with_name("cases.txt")
INTO = None  # where accepted hashes go
UNKNOWN = "-" * 16  # there, before they are known
LOCK = threading.Lock()
KERNELS = []  # train.isa, where this processor has the table's kernels; train.device
kills = []  # how many workers died in each run of "killed": a fast machine may end a run before the last kill
HASH = re.compile(r"^weights: xxh3 ([0-9a-f]{16})$", re.M)
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "process"))
from launched import TRIREME, ranks_of  # noqa: E402 (reads and removes the program from sys.argv)


class Case:
    """A line of the table: how a block is run, and the hash that it must give."""

    def __init__(self, line, words, expected):
        self.line, self.words, self.expected = line, words, expected


class Block:
    def __init__(self, name, expected):
        self.name, self.options, self.cases = name, [], [Case(None, [], expected)]


def read_table():
    blocks = []
    for number, line in enumerate(TABLE.read_text().splitlines()):
        words = shlex.split(line.replace("GOLDEN", str(pathlib.Path(__file__).resolve().parent)), comments=line.startswith("#"))
        if not words or line.startswith("#") or (words[0] == "long" and "TRIREME_TEST_ALL" not in os.environ):
            continue
        words = words[words[0] == "long":]
        if not line.startswith(" "):
            blocks.append(Block(words[0], words[1]))
            blocks[-1].cases[0].line = number
        elif words[0] == ":":
            blocks[-1].options += words[1:]
        elif words[0] == "own":
            blocks[-1].cases.append(Case(number, words[2:], words[1]))
        else:
            blocks[-1].cases.append(Case(None, words, None))
    return blocks


def has_recorded_kernels():
    """The table is of AVX2 kernels; without them the layouts of a block are compared with its one process."""
    info = subprocess.run([TRIREME, "info", "--json"], capture_output=True, text=True, check=True)
    return "avx2" in json.loads(info.stdout)["processor"]


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def train(folder, *words):
    """The output of a run that must end well."""
    done = subprocess.run([TRIREME, "train", *words, *KERNELS], cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=240)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout


def steps_of(run):
    """The last step in metrics.jsonl."""
    try:
        lines = (run / "metrics.jsonl").read_bytes().split(b"\n")[:-1]
    except OSError:
        return 0
    return max((json.loads(line).get("step", 0) for line in lines[-3:]), default=0)


def train_killed(folder, count, words):
    output = folder / "output"
    with output.open("w") as file:
        launcher = subprocess.Popen([TRIREME, "train", *words, *KERNELS], cwd=folder, env=environment(), stdout=file, stderr=subprocess.STDOUT)
    last, killed = 0, 0
    while launcher.poll() is None and killed < count:
        made, workers = steps_of(folder / "run"), ranks_of(launcher.pid)
        if made > last and len(workers) > 1:
            os.kill(workers[max(workers)], signal.SIGKILL)
            last, killed = made, killed + 1
        time.sleep(0.01)
    try:
        launcher.wait(timeout=240)
    except subprocess.TimeoutExpired:
        launcher.terminate()  # with its workers, which write into this folder
        launcher.wait()
        raise
    if launcher.returncode != 0:
        raise RuntimeError(f"exit code {launcher.returncode}: {output.read_text()[-2000:]}")
    kills.append(killed)
    return output.read_text()


def run(block, words):
    """The hash of the weights."""
    with tempfile.TemporaryDirectory(prefix="trireme-golden-") as name:
        folder = pathlib.Path(name)
        (folder / "run.yaml").write_text("{}\n")
        begin = ["run.yaml", "--out", "run", *block.options]
        if words[:1] == ["resume"]:
            middle = words.index(":")
            train(folder, *begin, f"train.steps={words[1]}", *words[2:middle])
            text = train(folder, "--resume", "run", "train.steps=0", *words[middle + 1:])
        elif words[:1] == ["killed"]:
            text = train_killed(folder, int(words[1]), [*begin, *words[2:]])
        else:
            text = train(folder, *begin, *words)
    if "fake device" in text:  # a worker that died of it, and was replaced
        raise RuntimeError(text[-2000:])
    found = HASH.search(text)
    if not found:
        raise RuntimeError(f"no line 'weights:' in: {text[-2000:]}")
    return found.group(1)


def accept_hash(lines, case, found):
    with LOCK:
        lines[case.line] = lines[case.line].replace(case.expected, found, 1)
        INTO.write_text("\n".join(lines) + "\n")


def check(block, recorded, accept, lines):
    """What to print of a block, and the number of cases whose hash is another one."""
    began, said, wrong, alone = time.monotonic(), [], 0, block.cases[0].expected if recorded else None
    for case in block.cases:
        expected = alone if case.expected is None else case.expected if recorded else None
        try:
            found = run(block, case.words)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            said.append(f"{block.name} {' '.join(case.words)}: {error}")
            wrong += 1
            continue
        if accept and case.line is not None:
            accept_hash(lines, case, found)
            alone = found if case is block.cases[0] else alone
        elif expected is None:
            alone = alone or found
        elif found != expected:
            said.append(f"{block.name} {' '.join(case.words) or '(one process)'}: want {expected}, got {found}")
            wrong += 1
    return "\n".join([*said, f"{block.name}: {len(block.cases)} runs, {time.monotonic() - began:.1f} s"]), wrong


def main():
    global TABLE, INTO
    if "--into" in sys.argv[:-1]:
        at = sys.argv.index("--into")
        INTO = pathlib.Path(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    flags = {"--accept", "--fake", "--cuda", "--layouts"}
    accept, names = "--accept" in sys.argv, [word for word in sys.argv[1:] if word not in flags and "=" not in word]
    KERNELS.extend(word for word in sys.argv[1:] if "=" in word)
    if "--fake" in sys.argv:
        KERNELS.append("train.device=fake")
    if "--cuda" in sys.argv:
        KERNELS.append("train.device=cuda")
        TABLE = TABLE.parent.parent / "gpu/expected/train.txt"
    blocks, lines, INTO = read_table(), TABLE.read_text().splitlines(), INTO or TABLE
    wrong, recorded = 0, "--cuda" in sys.argv or has_recorded_kernels()
    if "--layouts" in sys.argv:
        recorded = False
    elif "--cuda" in sys.argv:
        pass
    elif recorded:
        KERNELS.append("train.isa=avx2")
    else:
        print("other kernels than the table's: the layouts of each block are compared with one process")
    if accept and INTO != TABLE:
        for case in (case for block in blocks for case in block.cases if case.line is not None):
            lines[case.line], case.expected = lines[case.line].replace(case.expected, UNKNOWN, 1), UNKNOWN
    if accept and (not recorded or "--fake" in sys.argv):
        return 2
    unknown = set(names) - {block.name for block in blocks}
    if unknown:
        print(f"{TABLE} has no block {', '.join(sorted(unknown))}")
        return 2
    blocks = [block for block in blocks if not names or block.name in names]
    with concurrent.futures.ThreadPoolExecutor(max(os.cpu_count(), 2)) as pool:
        longest_first = sorted(blocks, key=lambda block: len(block.cases), reverse=True)
        for done in concurrent.futures.as_completed([pool.submit(check, block, recorded, accept, lines) for block in longest_first]):
            text, failed = done.result()
            print(text, flush=True)
            wrong += failed
    count = sum(len(block.cases) for block in blocks)
    print(f"{count} runs, {wrong} with other weights or none")
    if kills and not any(kills):
        print("no worker could be killed: the runs of 'killed' need more steps")
        return 1
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
