#!/usr/bin/env python3
"""PyTorch on the same models, for bench/run: prints one JSON object {"samples_per_s", "peak_mib", "step_ms"} on rank 0.

usage: peer_torch.py MODEL BATCH SECONDS [--ranks N] [--precision f32|bf16] [--context N]

MODEL: mlp cnn resnet20 gpt gpt2 (a sample of the last two is a sequence of CONTEXT tokens); BATCH: of each process. With --ranks N it
starts N processes (DistributedDataParallel over Gloo). Data are random and lie in memory.
"""
import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["mlp", "cnn", "resnet20", "gpt", "gpt2"])
    parser.add_argument("batch", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--context", type=int, default=256)
    return parser.parse_args()


def start_ranks(ranks):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    processes = []
    for rank in range(ranks):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                   GLOO_SOCKET_IFNAME="lo")
        cores = sorted(os.sched_getaffinity(0))
        pin = {cores[rank % len(cores)]}
        processes.append(subprocess.Popen([sys.executable, *sys.argv], env=env,
                                          preexec_fn=lambda pin=pin: os.sched_setaffinity(0, pin)))
    sys.exit(max(process.wait() for process in processes))


ARGS = parse()
RANK, RANKS = int(os.environ.get("RANK", "-1")), ARGS.ranks
if RANKS > 1 and RANK < 0:
    start_ranks(RANKS)

import torch  # noqa: E402 (after the ranks are started)
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from peer_gpt import Gpt  # noqa: E402

GPT = {"gpt": (6, 6, 384, 65), "gpt2": (12, 12, 768, 50257)}  # layers, heads, width, words


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut (projected where the shape changes)."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        same = stride == 1 and channels_in == channels
        self.shortcut = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


def resnet20():
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    channels_in = 16
    for channels, first_stride in ((16, 1), (32, 2), (64, 2)):
        for block in range(3):
            layers.append(Block(channels_in, channels, first_stride if block == 0 else 1))
            channels_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def build():
    if ARGS.model == "mlp":
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)), (784,)
    if ARGS.model == "cnn":
        return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                             nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)), (1, 28, 28)
    return resnet20(), (3, 32, 32)


def make_images():
    """A network, its batch number i, its optimizer; the loss of a batch."""
    net, sample = build()
    inputs, targets = torch.randn(4096, *sample), torch.randint(0, 10, (4096,))
    if len(sample) == 3:
        net = net.to(memory_format=torch.channels_last)
        inputs = inputs.contiguous(memory_format=torch.channels_last)

    def batch(number):
        first = number * ARGS.batch % (4096 - ARGS.batch + 1)
        return inputs[first:first + ARGS.batch], targets[first:first + ARGS.batch]

    return net, batch, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=True), lambda net, x, y: F.cross_entropy(net(x), y)


def make_gpt():
    layers, heads, width, words = GPT[ARGS.model]
    text = torch.randint(0, words, (64 * ARGS.batch, ARGS.context + 1))

    def batch(number):
        rows = text[number % 64 * ARGS.batch:][:ARGS.batch]
        return rows[:, :-1], rows[:, 1:]

    net = Gpt(layers, heads, width, ARGS.context, words)
    return net, batch, lambda p: torch.optim.AdamW(p, lr=3e-4, weight_decay=0.1, foreach=True), lambda net, x, y: net(x, y)


def main():
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(1)
    net, batch, make_optimizer, loss_of = make_gpt() if ARGS.model in GPT else make_images()
    if RANKS > 1:
        torch.distributed.init_process_group("gloo", rank=RANK, world_size=RANKS)
        net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = make_optimizer(net.parameters())

    def step(number):
        began = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=ARGS.precision == "bf16"):
            loss = loss_of(net, *batch(number))
        optimizer.zero_grad(set_to_none=RANKS == 1)
        loss.backward()
        optimizer.step()
        return time.perf_counter() - began

    warm = [step(i) for i in range(2 if ARGS.model in GPT else 8)]
    count = torch.tensor([max(5 if ARGS.model in GPT else 10, int(ARGS.seconds / min(warm)))])
    if RANKS > 1:
        torch.distributed.all_reduce(count, op=torch.distributed.ReduceOp.MIN)
    times = [step(i) for i in range(int(count))]
    seconds = statistics.median(times)
    if RANK <= 0:
        print(json.dumps({"samples_per_s": RANKS * ARGS.batch / seconds, "step_ms": seconds * 1e3,
                          "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


main()
