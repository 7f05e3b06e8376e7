#!/usr/bin/env python3
"""PyTorch on one card, for bench/gpu/run: prints after each step one JSON object {"step_s": [..], "torch": version}, or {"missing": why}.

usage: peer.py VARIANT LAYERS,HEADS,WIDTH,WORDS,CONTEXT|resnet20 BATCH STEPS WARM [--cpu]

VARIANT: eager, compiled, deterministic (eager with deterministic algorithms), compiled_deterministic. bf16 by autocast, attention by SDPA,
fused AdamW; images are channels-last. Data are random and in the card's memory.
"""
import json
import os
import pathlib
import sys
import time

VARIANT, SHAPE, BATCH, STEPS, WARM = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # deterministic algorithms need it
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from card_torch import DEVICE, torch, wait  # noqa: E402 (they look at the environment)
from peer_gpt import Gpt  # noqa: E402

nn, F = torch.nn, torch.nn.functional


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)
        same = stride == 1 and channels_in == channels
        self.shortcut = nn.Identity() if same else nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                                                                 nn.BatchNorm2d(channels))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet20():
    layers, channels_in = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
    for channels, first_stride in ((16, 1), (32, 2), (64, 2)):
        for block in range(3):
            layers.append(Block(channels_in, channels, first_stride if block == 0 else 1))
            channels_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def make():
    """The network, its batch, its optimizer, and the loss of a batch."""
    if SHAPE == "resnet20":
        net = resnet20().to(DEVICE, memory_format=torch.channels_last)
        images = torch.randn(BATCH, 3, 32, 32, device=DEVICE).contiguous(memory_format=torch.channels_last)
        batch = images, torch.randint(0, 10, (BATCH,), device=DEVICE)
        return net, batch, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, foreach=True), lambda n, x, y: F.cross_entropy(n(x), y)
    layers, heads, width, words, context = map(int, SHAPE.split(","))
    net = Gpt(layers, heads, width, context, words).to(DEVICE)
    text = torch.randint(0, words, (BATCH, context + 1), device=DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, weight_decay=0.1, **({"fused": True} if DEVICE == "cuda" else {}))
    return net, (text[:, :-1].contiguous(), text[:, 1:].contiguous()), optimizer, lambda n, x, y: n(x, y)


def main():
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = SHAPE == "resnet20"  # its shapes never change
    torch.use_deterministic_algorithms("deterministic" in VARIANT, warn_only=True)
    net, batch, optimizer, loss_of = make()
    run = torch.compile(net) if VARIANT.startswith("compiled") else net
    times = []
    for _ in range(WARM + STEPS):
        wait()
        began = time.perf_counter()
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = loss_of(run, *batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        wait()
        times.append(time.perf_counter() - began)
        print(json.dumps({"step_s": times[WARM:], "torch": torch.__version__}), flush=True)


main()
