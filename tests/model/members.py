#!/usr/bin/env python3
"""Checks members.pml with spin, exhaustively: the rules hold, and each of them is needed.

usage: members.py                       what the tests do: small cases, and each rule dropped in turn
       members.py -DN=4 -DKILLS=2 ...   one case of that size, told as it is: minutes and gigabytes

Ends with 77, which CTest takes for skipped, where spin or a C compiler is not there.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# Faults of a case: how many of each there may be, at any time.
HOLDS = [
    {"N": 3, "KILLS": 1, "STOPS": 0, "JOINS": 0},
    {"N": 3, "KILLS": 2, "STOPS": 0, "JOINS": 0},
    {"N": 3, "KILLS": 0, "STOPS": 1, "JOINS": 0},
    {"N": 2, "KILLS": 1, "STOPS": 0, "JOINS": 1},
    {"N": 2, "KILLS": 1, "STOPS": 1, "JOINS": 0},
]
# A rule that is left out (members.h), and a case in which it is missed.
NEEDED = [
    (3, "who lost a peer goes on with it", {"N": 3, "KILLS": 0, "STOPS": 1, "JOINS": 0}),
    (5, "the list is closed before all have come", {"N": 3, "KILLS": 1, "STOPS": 0, "JOINS": 0}),
    (6, "the last claim stands", {"N": 3, "KILLS": 0, "STOPS": 1, "JOINS": 0, "STEPS": 1}),
    (7, "a state that may come is not waited for", {"N": 3, "KILLS": 1, "STOPS": 1, "JOINS": 0, "STEPS": 1}),
    (9, "who is behind begins with what it has", {"N": 3, "KILLS": 1, "STOPS": 0, "JOINS": 0}),
    (17, "only members of the last list are waited for", {"N": 2, "KILLS": 1, "STOPS": 1, "JOINS": 1, "STEPS": 1}),
    (19, "who was given up stays out", {"N": 3, "KILLS": 1, "STOPS": 1, "JOINS": 0, "STEPS": 1}),
]


def words(case):
    return [f"-D{name}={value}" for name, value in case.items()]


def check(folder, defines):
    """(errors, states, output) of one case."""
    for name in ("members.pml", "members.h"):
        shutil.copy(HERE / name, folder)
    def run(*command):
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout
    code, text = run("spin", "-a", *defines, "members.pml")
    if code != 0:
        sys.exit(f"spin: {text}")
    code, text = run(os.environ.get("CC", "cc"), "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DNOREDUCE", "-DNOFAIR", "-o", "pan", "pan.c")
    if code != 0:
        sys.exit(f"pan.c: {text}")
    _, text = run("./pan", "-m100000")
    found = re.search(r"errors: (\d+)\s+(\d+) states, stored", text)
    if not found or "max search depth too small" in text or "out of memory" in text:
        sys.exit(f"{' '.join(defines)}: the search did not come to its end:\n{text}")
    return int(found[1]), int(found[2]), text


def main():
    if not shutil.which("spin") or not shutil.which(os.environ.get("CC", "cc")):
        print("skipped: want spin and a C compiler")
        sys.exit(77)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1:]:
            errors, _, text = check(folder, sys.argv[1:])
            print(text)
            sys.exit(errors > 0)
        for case in HOLDS:
            errors, states, text = check(folder, words(case))
            failed += errors > 0
            print(f"{'FAILED' if errors else 'ok    '} {' '.join(words(case))}: {states} states", flush=True)
        for rule, what, case in NEEDED:
            errors, states, _ = check(folder, words(case) + [f"-DDROP={rule}"])
            failed += errors == 0
            print(f"{'ok    ' if errors else 'FAILED'} without rule {rule} ({what}): "
                  f"{'goes wrong' if errors else 'nothing goes wrong'} in {states} states", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
