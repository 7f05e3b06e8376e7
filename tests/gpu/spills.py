#!/usr/bin/env python3
"""Kernels for GPUs keep their values in registers: reads what ptxas said of each (-Xptxas -v)."""
import pathlib
import re
import sys

MOST_SHARED = 48 << 10

file = pathlib.Path(sys.argv[1])
if not file.is_file():
    print(f"skipped: {file} is not built")
    sys.exit(77)
problems, kernel, count = [], "?", 0
for line in file.read_text().splitlines():
    if found := re.search(r"entry function '(\w+)' for '(\w+)'", line):
        kernel, count = f"{found[1]} ({found[2]})", count + 1
    if (found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)) and any(
            int(n) for n in found.groups()):
        problems.append(f"{kernel}: {line.strip()}")
    if (found := re.search(r"(\d+) bytes smem", line)) and int(found[1]) > MOST_SHARED:
        problems.append(f"{kernel}: {found[1]} bytes of shared memory, at most {MOST_SHARED}")
print("\n".join(problems) or f"{count} kernels, no spills")
sys.exit(1 if problems or count == 0 else 0)
