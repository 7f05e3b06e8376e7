#!/usr/bin/env python3
"""PyTorch under torchrun, for bench/reliability torchrun: a script as its documentation has it, that goes on from its last snapshot.

usage: peer_torchrun.py agent [torchrun's options] -- MODEL BATCH FOLDER    the agent: it starts this file again, as its workers
       peer_torchrun.py MODEL BATCH FOLDER                                 a worker: mlp or cnn, BATCH samples of each process

A worker appends "PID STEP TIME" to FOLDER/steps after each step: the clock that all processes of this machine share. Rank 0 writes a snapshot of
model and optimizer each 25 steps, to another name first; whoever starts loads it.
"""
import os
import sys
import time


def agent(words):
    """torchrun; Debian's torch 1.13 reads the number of a redirection as None with Python 3.11, where it means that of no redirection."""
    from torch.distributed.elastic.multiprocessing import api
    from torch.distributed.run import main
    api.Std.from_str = classmethod(lambda cls, text: cls.NONE)
    at = words.index("--")
    main([*words[:at], os.path.abspath(__file__), *words[at + 1:]])


def model_of(name):
    from torch import nn
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)), (784,)
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)), (1, 28, 28)


def worker(name, batch, folder):
    import torch
    from torch.nn import functional as F
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")
    net, sample = model_of(name)
    inputs, targets = torch.randn(4096, *sample), torch.randint(0, 10, (4096,))
    optimizer, first = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), 0
    snapshot = os.path.join(folder, "snapshot")
    if os.path.exists(snapshot):
        saved = torch.load(snapshot)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"] + 1
    both = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    log = os.open(os.path.join(folder, "steps"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for step in range(first, 1 << 40):
        at = step * batch % (4096 - batch + 1)
        loss = F.cross_entropy(both(inputs[at:at + batch]), targets[at:at + batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        os.write(log, f"{os.getpid()} {step} {time.monotonic()}\n".encode())
        if step % 25 == 24 and torch.distributed.get_rank() == 0:
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, snapshot + ".new")
            os.rename(snapshot + ".new", snapshot)


if __name__ == "__main__":
    if sys.argv[1] == "agent":
        agent(sys.argv[2:])
    else:
        worker(sys.argv[1], int(sys.argv[2]), sys.argv[3])
