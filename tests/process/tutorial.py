#!/usr/bin/env python3
"""docs/tutorial.md does what it says: its commands run as they stand, and every way of training ends with the same weights.

usage: tutorial.py TRIREME
"""
import re
import sys

import stripes
from page_commands import run

SAME = 7    # lines of weights: six ways of training, and eval
OTHERS = 3  # what ends in mid-epoch, images, a table

def main():
    text, found = run("tutorial.md", 500, prepare=lambda folder: stripes.make(f"{folder}/pictures"))
    same = [weights for weights in found if weights == found[0]]
    if len(found) != SAME + OTHERS or len(same) != SAME:
        sys.exit(f"{text}\ntutorial.py: want {SAME} equal lines of weights and {OTHERS} others, found {found}")
    for said in (r"^  +[0-9.]+ s  kill +worker", r'^\{"class":', r'"name":"vertical"', r"^test mae \d", r'^\{.*\b(29[0-9]|30[0-9])\b'):
        if not re.search(said, text, re.M):
            sys.exit(f"{text}\ntutorial.py: no line of what the commands print is like '{said}'")
    print(f"tutorial.py: {SAME} times the weights {found[0]}")

main()
