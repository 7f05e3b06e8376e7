#!/usr/bin/env python3
"""docs/clusters.md, "A list of hosts", does what it says: ranks from a host file and from a TF_CONFIG in base64 end with the weights of one process.

usage: paperspace.py TRIREME
"""
import sys

from page_commands import run
from ports import free_port

WAYS = 3  # alone, a host file, TF_CONFIG

def main():
    text, found = run("clusters.md", 100, TRIREME_PORT=str(free_port()))
    if len(found) != WAYS or len(set(found)) != 1:
        sys.exit(f"{text}\npaperspace.py: want {WAYS} equal lines of weights, found {found}")
    print(f"paperspace.py: {WAYS} times the weights {found[0]}")

main()
