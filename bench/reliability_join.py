"""Row 22 of bench/reliability: a worker that joins gets a state of 480 MB, and what a plain socket moves in the same run.

Three workers become four: on one host; on two, network namespaces joined by a veth pair. The socket's bytes go the same way, by a program of
its own that is begun before and after each join; the better one counts.
"""
import importlib
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

from reliability_hosts import FOREVER, NET, Hosts, in_host, line_after

# 40.0 million weights; under AdamW a state of 480 MB.
CONFIG = """
model: {name: mlp, hidden: [6300, 6300]}
data: {name: synthetic, synthetic_count: 64, synthetic_width: 32}
train: {batch: 8, shards: 8}
optim: {name: adamw, lr: 0.001}
comm: {timeout_s: 120}
"""
NBYTES = 480 << 20
LISTEN = """
import socket, sys
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
room, left = memoryview(bytearray(8 << 20)), int(sys.argv[2])
link = server.accept()[0]
while left > 0:
    left -= link.recv_into(room)
link.sendall(b"!")
"""
SEND = """
import socket, sys, time
link, data, left = socket.create_connection((sys.argv[1], int(sys.argv[2]))), bytes(8 << 20), int(sys.argv[3])
start = time.monotonic()
while left > 0:
    link.sendall(data)
    left -= len(data)
link.recv(1)
print(time.monotonic() - start)
"""


def socket_rate(before, address):
    """MB/s of one stream, from the first host to the last."""
    server = subprocess.Popen([*before[-1], sys.executable, "-c", LISTEN, address, str(NBYTES)], stdout=subprocess.PIPE, text=True)
    port = server.stdout.readline().strip()
    done = subprocess.run([*before[0], sys.executable, "-c", SEND, address, port, str(NBYTES)], stdout=subprocess.PIPE, text=True, check=True)
    server.wait()
    return NBYTES / 1e6 / float(done.stdout)


def join(args, elastic, workers_in, name, before, address, words):
    """Rates of the state's way and of the socket's, and how long the others were held up beside a step of theirs."""
    join_words = ["--elastic", "1:4", *words, *FOREVER]
    listen = ["--listen", address]
    main = elastic.Run(args.scratch, name, "-n", "3", *listen, *join_words, before=before[0])
    main.wait_for("ranks, run folder")
    where = re.search(r"--join (\S+),", main.text()).group(1)
    log = pathlib.Path(args.scratch, name, "metrics.jsonl")
    while not log.exists() or log.read_text().count('"loss"') < 4:
        time.sleep(0.05)
    plain, rates, held = [], [], []
    for _ in range(5 if args.long else 1):
        plain.append(socket_rate(before, address if before[-1] is before[0] else f"{NET}.2"))
        mark, start = len(main.lines), time.monotonic()
        guest = elastic.Run(args.scratch, name, "-n", "1", "--join", where, *join_words, before=before[-1])
        line_after(guest, start, r"has the state after step", 60)
        line_after(main, start, r": resumed, step", 60, mark)
        rates += [float(rate) for rate in re.findall(r"has the state after step .* s \((\d+) MB/s\)", guest.text())]
        held += [float(ms) for ms in re.findall(r": resumed, step \d+ is done (\d+) ms", "".join(line for _, line in main.lines[mark:]))[:1]]
        mark = len(main.lines)
        for pid in elastic.ranks_of(guest.process.pid).values():
            os.kill(pid, signal.SIGTERM)
        line_after(main, time.monotonic(), r": resumed, step", 60, mark)
        guest.end()
    plain.append(socket_rate(before, address if before[-1] is before[0] else f"{NET}.2"))
    main.process.kill()  # a checkpoint of it would take its time
    for pid in workers_in(args.scratch).values():
        os.kill(pid, signal.SIGKILL)
    main.end()
    step = 8 / statistics.median(float(rate) for rate in re.findall(r'"samples_per_s": ?([0-9.]+)', log.read_text())) * 1e3
    return max(rates), max(plain), statistics.median(held), step


def add(row, skipped, tests_of):
    @row(22, "joining a large state", "3 workers become 4, 480 MB of state, on one host by memory and by tcp, and from another host: at 80 % of what a plain socket moves "
             "there in the same run; the others lose a step's time at most")
    def large_join(args):
        elastic = tests_of(args, "elastic")
        launched = importlib.import_module("launched")
        os.environ["TRIREME_TOKEN"] = f"token-of-joiners-seed-{args.seed}"
        pathlib.Path(args.scratch, "run.yaml").write_text(CONFIG)
        found, good = [], True
        hosts = Hosts(2, skipped)
        try:
            for name, before, address, words in (("one host", [[]], "127.0.0.1", []), ("one host by tcp", [[]], "127.0.0.1", ["comm.transport=tcp"]),
                                                 ("two hosts", [in_host(0), in_host(1)], f"{NET}.1", [])):
                rate, plain, held, step = join(args, elastic, launched.workers_in, name.replace(" ", "-"), before, address, words)
                good = good and rate >= 0.8 * plain and held <= 2 * step
                found.append(f"{name} {rate:.0f} MB/s, socket {plain:.0f} ({rate / plain:.2f}); held up {held:.0f} ms, a step is {step:.0f}")
        finally:
            hosts.end()
        return "; ".join(found), good
