#!/usr/bin/env python3
"""A GPT in PyTorch whose parameters, gradients and AdamW state are sharded (fully_shard, Gloo, CPU tensors), beside
`trireme train examples/gpt/small.yaml parallel.sync=zero3`: prints one JSON object on rank 0.

usage: peer_fsdp.py [--ranks N] [--layers 6] [--heads 6] [--width 384] [--context 256] [--batch B] [--steps S] [--mode fsdp|ddp]
                    [--dropout 0.2] [--attention-dropout 0]

BATCH is of each process, one thread each. Data are random and lie in memory. The weights that attention gives are dropped with
--attention-dropout (nanoGPT: as much as all else; Trireme's attn_pdrop). Needs a PyTorch whose fully_shard takes CPU
tensors (2.15 does; Debian's 1.13 asserts that it was compiled with CUDA).
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
    for name, value in (("ranks", 2), ("layers", 6), ("heads", 6), ("width", 384), ("context", 256), ("words", 65),
                        ("batch", 8), ("steps", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--attention-dropout", type=float, default=0)
    parser.add_argument("--mode", choices=["fsdp", "ddp"], default="fsdp")
    return parser.parse_args()


def start_ranks(ranks):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    cores = sorted(os.sched_getaffinity(0))
    processes = []
    for rank in range(ranks):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                   GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
        pin = {cores[rank % len(cores)]}
        processes.append(subprocess.Popen([sys.executable, *sys.argv], env=env,
                                          preexec_fn=lambda pin=pin: os.sched_setaffinity(0, pin)))
    sys.exit(max(process.wait() for process in processes))


ARGS = parse()
RANK = int(os.environ.get("RANK", "-1"))
if RANK < 0:
    start_ranks(ARGS.ranks)

import torch  # noqa: E402 (after the ranks are started)
from torch import nn  # noqa: E402

from peer_gpt import Gpt  # noqa: E402


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo", rank=RANK, world_size=ARGS.ranks)
    net = Gpt(ARGS.layers, ARGS.heads, ARGS.width, ARGS.context, ARGS.words, ARGS.dropout, ARGS.attention_dropout)
    if ARGS.mode == "ddp":
        net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (ARGS.ranks,))
        for block in net.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    tokens = torch.randint(0, ARGS.words, (ARGS.batch, ARGS.context + 1))
    times = []
    for _ in range(ARGS.steps + 2):
        began = time.perf_counter()
        optimizer.zero_grad()
        net(tokens[:, :-1], tokens[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - began)
    seconds = statistics.median(times[2:])
    if RANK == 0:
        print(json.dumps({"samples_per_s": ARGS.ranks * ARGS.batch / seconds, "step_ms": seconds * 1e3,
                          "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "torch": torch.__version__}))
    torch.distributed.destroy_process_group()


main()
