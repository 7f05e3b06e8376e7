#!/usr/bin/env python3
"""Kernels for GPUs keep their values in registers, and blocks enough fit on a multiprocessor: reads what ptxas said of each
(-Xptxas -v).
"""
import pathlib
import re
import sys

MOST_SHARED = 48 << 10
REGISTERS = 64 << 10  # of a multiprocessor; a thread gets them by eights
THREADS = {"gemm_half": 128}  # of a block, where it is not 256
# Blocks that have to fit; others two, those of attention one.
BLOCKS = {"columns": 3, "gemm": 4, "gemm_half": 4, "gemm_wide": 2, "map": 8, "norm": 6, "norm_back": 6, "words_sum": 6}


def blocks_of(name, registers):
    """How many fit, and how many have to."""
    fit = REGISTERS // (-(-registers // 8) * 8 * THREADS.get(name, 256))
    return fit, BLOCKS.get(name, 1 if name.startswith("attention") else 2)


file = pathlib.Path(sys.argv[1])
if not file.is_file():
    print(f"skipped: {file} is not built")
    sys.exit(77)
problems, kernel, name, count = [], "?", "?", 0
for line in file.read_text().splitlines():
    if found := re.search(r"entry function '(?:tri_cuda_)?(\w+)' for '(\w+)'", line):
        name, kernel, count = found[1], f"{found[1]} ({found[2]})", count + 1
    if (found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)) and any(
            int(n) for n in found.groups()):
        problems.append(f"{kernel}: {line.strip()}")
    if (found := re.search(r"(\d+) bytes smem", line)) and int(found[1]) > MOST_SHARED:
        problems.append(f"{kernel}: {found[1]} bytes of shared memory, at most {MOST_SHARED}")
    if found := re.search(r"Used (\d+) registers", line):
        fit, wanted = blocks_of(name, int(found[1]))
        if fit < wanted:
            problems.append(f"{kernel}: {found[1]} registers leave room for {fit} blocks on a multiprocessor, want {wanted}")
print("\n".join(problems) or f"{count} kernels, no spills")
sys.exit(1 if problems or count == 0 else 0)
