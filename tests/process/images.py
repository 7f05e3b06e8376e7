#!/usr/bin/env python3
"""docs/data.md does what it says: its commands run as they stand on 200 images, and files are answered with their class.

usage: images.py TRIREME
"""
import json
import os
import pathlib
import random
import struct
import sys
import zlib

import page_commands

COLORS = {"ant": (190, 70, 60), "bee": (60, 170, 80)}


def png(path, width, height, color, rng):
    """An RGB image of noise around a color."""
    lines = b"".join(b"\0" + bytes(max(0, min(255, c + rng.randrange(-40, 41))) for _ in range(width) for c in color) for _ in range(height))
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(lines, 1)) + chunk(b"IEND", b""))


def make(folder):
    rng = random.Random(1)
    for name, color in COLORS.items():
        path = pathlib.Path(folder, "pets", name)
        path.mkdir(parents=True)
        for i in range(100):
            png(path / f"{i:04}.png", rng.randrange(20, 40), rng.randrange(20, 40), color, rng)


def main():
    examples = pathlib.Path(__file__).resolve().parents[2] / "examples"
    text, weights = page_commands.run("data.md", 120, prepare=make, EXAMPLES=str(examples))
    if "no libpng" in text:
        sys.exit(77)
    answers = [json.loads(line) for line in text.splitlines() if line.startswith('{"file"')]
    right = sum(answer["name"] == answer["file"].split("/")[1] for answer in answers)
    if len(weights) != 1 or len(answers) != 101 or right < 95 or "class 1     bee: 90 training, 10 test" not in text:
        sys.exit(f"{text}\nimages.py: want 101 answers, 95 of them right, and the counts of classes, found {len(answers)} and {right}")
    print(f"images.py: {right} of {len(answers)} files right")


main()
