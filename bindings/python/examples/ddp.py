#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel on any number of processes: the minimal example, with the backend as an argument.

    torchrun --nproc-per-node 2 bindings/python/examples/ddp.py
    trireme launch -n 2 -- python3 bindings/python/examples/ddp.py
    mpirun -n 2 python3 bindings/python/examples/ddp.py
"""
import argparse
import hashlib

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP

import trireme.torch  # noqa: F401  (makes the backend known)


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 100)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(100, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def train(rank, world, steps):
    torch.manual_seed(1)
    ddp_model = DDP(ToyModel())
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        inputs, labels = torch.randn(24, 10, generator=generator), torch.randn(24, 5, generator=generator)
        own = slice(rank * 24 // world, (rank + 1) * 24 // world)
        optimizer.zero_grad()
        loss = loss_fn(ddp_model(inputs[own]), labels[own])
        loss.backward()
        optimizer.step()
    return ddp_model.module, loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="trireme")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--save", help="file for rank 0's weights")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(args.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    model, loss = train(rank, world, args.steps)
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    print(f"rank {rank} of {world}: loss {loss.item():.6f}, weights {digest[:16]}", flush=True)
    if args.save and rank == 0:
        torch.save(model.state_dict(), args.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
