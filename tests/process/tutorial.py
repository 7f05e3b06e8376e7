#!/usr/bin/env python3
"""docs/tutorial.md does what it says: its commands run as they stand, and every way of training ends with the same weights.

usage: tutorial.py TRIREME
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/tutorial.md"
SAME = 7  # lines of weights: six ways of training, and eval; what ends in mid-epoch has one of its own

def commands():
    """Lines with a prompt, and those that continue them."""
    return "\n".join(m.group(1) for m in re.finditer(r"^    [$>] (.*)$", PAGE.read_text(), re.M))

def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    # One thread: two that wait for each other on cores that other tests use are twenty times slower.
    env = dict(os.environ, OMP_NUM_THREADS="1", PATH=f"{program.parent}:{os.environ['PATH']}")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", commands()], cwd=folder, env=env, text=True, timeout=240,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\ntutorial.py: the commands ended with {done.returncode}")
    found = re.findall(r"^weights: xxh3 ([0-9a-f]{16})$", done.stdout, re.M)
    same = [weights for weights in found if weights == found[0]]
    if len(found) != SAME + 1 or len(same) != SAME:
        sys.exit(f"{done.stdout}\ntutorial.py: want {SAME} equal lines of weights and one of a part of a run, found {found}")
    for said in (r"^  +[0-9.]+ s  kill +worker", r'^\{"class":'):
        if not re.search(said, done.stdout, re.M):
            sys.exit(f"{done.stdout}\ntutorial.py: no line of what the commands print is like '{said}'")
    print(f"tutorial.py: {SAME} times the weights {found[0]}")

main()
