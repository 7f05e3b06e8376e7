#!/usr/bin/env python3
"""docs/paperspace.md does what it says: ranks from a host file and from a TF_CONFIG in base64 end with the weights of one process.

usage: paperspace.py TRIREME
"""
import socket
import sys

from page_commands import run

WAYS = 3  # alone, a host file, TF_CONFIG

def main():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text, found = run("paperspace.md", 100, TRIREME_PORT=str(port))
    if len(found) != WAYS or len(set(found)) != 1:
        sys.exit(f"{text}\npaperspace.py: want {WAYS} equal lines of weights, found {found}")
    print(f"paperspace.py: {WAYS} times the weights {found[0]}")

main()
