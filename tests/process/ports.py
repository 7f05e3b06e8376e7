"""Ports for tests that must name one before its listener is there."""
import itertools
import os
import socket

FIRST, COUNT = 20_000, 12_000  # below what the system gives out by itself (net.ipv4.ip_local_port_range)

candidates = itertools.count(16 * os.getpid())  # tests that run at once begin at other ones


def free_port(host="127.0.0.1"):
    """Nobody listens there, and no connection or listener of another program gets it by chance."""
    for candidate in itertools.islice(candidates, COUNT):
        with socket.socket() as probe:
            try:
                probe.bind((host, FIRST + candidate % COUNT))
                return FIRST + candidate % COUNT
            except OSError:
                pass
    raise OSError(f"no free port from {FIRST} to {FIRST + COUNT}")
