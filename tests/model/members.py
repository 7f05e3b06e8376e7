#!/usr/bin/env python3
"""Checks members.pml and formed.pml with spin, exhaustively: the rules hold, and each of them is needed.

usage: members.py                              what the tests do: small cases, and each rule dropped in turn
       members.py MODEL -DN=4 -DKILLS=2 ...    one case of that size, told as it is: minutes and gigabytes
       DROP=9 members.py MODEL -DN=3 ...       the same without a rule

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
    ("members", {"N": 3, "KILLS": 1, "STOPS": 0, "JOINS": 0}),
    ("members", {"N": 3, "KILLS": 2, "STOPS": 0, "JOINS": 0}),
    ("members", {"N": 3, "KILLS": 0, "STOPS": 1, "JOINS": 0}),
    ("members", {"N": 2, "KILLS": 1, "STOPS": 0, "JOINS": 1}),
    ("members", {"N": 2, "KILLS": 1, "STOPS": 1, "JOINS": 0}),
    ("members", {"N": 3, "KILLS": 0, "STOPS": 0, "JOINS": 0, "DEAF": 1}),
    ("members", {"N": 2, "KILLS": 0, "STOPS": 1, "JOINS": 0, "DEAF": 1}),
    ("members", {"N": 2, "KILLS": 0, "STOPS": 2, "JOINS": 0, "DEAF": 1, "STEPS": 1}),
    ("formed", {"N": 2, "KILLS": 1, "STOPS": 1}),
    ("formed", {"N": 3, "KILLS": 1, "STOPS": 0, "STEPS": 2}),
    ("formed", {"N": 3, "KILLS": 0, "STOPS": 1}),
]
STRUCK = {"N": 3, "KILLS": 1, "STOPS": 1, "JOINS": 0, "STEPS": 1}
# A rule that is left out (members.h, formed.h), and a case in which it is missed.
NEEDED = [
    ("members", 3, "who lost a peer goes on with it", STRUCK),
    ("members", 5, "the list is closed before all have come", STRUCK),
    ("members", 6, "the last claim stands", STRUCK),
    ("members", 7, "a state that may come is not waited for", STRUCK),
    ("members", 9, "who is behind begins with what it has", STRUCK),
    ("members", 10, "where links were never made who is silent is waited for", {"N": 3, "KILLS": 0, "STOPS": 0, "JOINS": 0, "DEAF": 1}),
    ("members", 17, "only members of the last list are waited for", {"N": 2, "KILLS": 1, "STOPS": 1, "JOINS": 1, "STEPS": 1}),
    ("members", 19, "who was given up stays out", STRUCK),
    ("members", 20, "the first alone closes the list, though it may be deaf", {"N": 2, "KILLS": 0, "STOPS": 2, "JOINS": 0, "DEAF": 1, "STEPS": 1}),
    ("formed", 21, "who loses the others does not ask, and says both that it has", {"N": 2, "KILLS": 1, "STOPS": 1}),
    ("formed", 22, "the word that all have theirs is given before all have", {"N": 2, "KILLS": 1, "STOPS": 1}),
    ("formed", 23, "who gives the word does not ask", {"N": 2, "KILLS": 1, "STOPS": 1}),
    ("formed", 24, "what a process is ready with is not kept", {"N": 2, "KILLS": 1, "STOPS": 1}),
    ("formed", 25, "those that are ready make a step alone", {"N": 3, "KILLS": 1, "STOPS": 1}),
    ("formed", 26, "who is ready moves before all are", {"N": 2, "KILLS": 1, "STOPS": 1}),
]


def words(case):
    return [f"-D{name}={value}" for name, value in case.items()]


def build(folder, model, defines):
    """The checker of one size, which is made once."""
    place = pathlib.Path(folder) / "".join([model, *defines])
    if place.exists():
        return place
    place.mkdir()
    for name in (f"{model}.pml", f"{model}.h", "rules.h"):
        shutil.copy(HERE / name, place)
    compiler = [os.environ.get("CC", "cc"), "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DNOREDUCE", "-DNOFAIR", "-o", "pan", "pan.c"]
    for command in (["spin", "-a", *defines, f"{model}.pml"], compiler):
        done = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{command[0]}: {done.stdout}")
    return place


def check(folder, model, defines, rule=None):
    """(errors, states, output) of one case; without a rule, perhaps."""
    env = {**os.environ, **({"DROP": str(rule)} if rule else {})}
    text = subprocess.run(["./pan", "-m100000"], cwd=build(folder, model, defines), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True).stdout
    found = re.search(r"errors: (\d+)\s+(\d+) states, stored", text)
    if not found or "max search depth too small" in text or "out of memory" in text:
        sys.exit(f"{model} {' '.join(defines)}: the search did not come to its end:\n{text}")
    return int(found[1]), int(found[2]), text


def main():
    if not shutil.which("spin") or not shutil.which(os.environ.get("CC", "cc")):
        print("skipped: want spin and a C compiler")
        sys.exit(77)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1:]:
            if sys.argv[1] not in ("members", "formed"):
                sys.exit(f"want members or formed, found '{sys.argv[1]}'")
            errors, _, text = check(folder, sys.argv[1], sys.argv[2:])
            print(text)
            sys.exit(errors > 0)
        for model, case in HOLDS:
            errors, states, text = check(folder, model, words(case))
            failed += errors > 0
            print(f"{'FAILED' if errors else 'ok    '} {model} {' '.join(words(case))}: {states} states", flush=True)
        for model, rule, what, case in NEEDED:
            errors, states, _ = check(folder, model, words(case), rule)
            failed += errors == 0
            print(f"{'ok    ' if errors else 'FAILED'} without rule {rule} ({what}): "
                  f"{'goes wrong' if errors else 'nothing goes wrong'} in {states} states", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
