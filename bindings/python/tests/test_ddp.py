# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel over Trireme and over Gloo: the same weights to rounding, the same bits in every run; and
everything that can start the ranks."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch

import ranks

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples/ddp.py")
TORCH_2 = int(torch.__version__.split(".")[0]) >= 2

# Everything DDP does beside gradients: buffers, parameters that are not used, several buckets, no_sync, a hook.
BODY = """
import os, sys, hashlib
import torch, torch.distributed as dist
import trireme.torch
from torch.nn.parallel import DistributedDataParallel as DDP
torch.set_num_threads(1)
dist.init_process_group(sys.argv[1])
rank = dist.get_rank()
torch.manual_seed(rank)
net = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                          torch.nn.Linear(8 * 36, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10))
net.register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
ddp = DDP(net, bucket_cap_mb=0.05, find_unused_parameters=True, gradient_as_bucket_view=True)
if len(sys.argv) > 2:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(100 + rank)
for step in range(6):
    optimizer.zero_grad()
    with ddp.no_sync():
        ddp(torch.randn(4, 1, 8, 8, generator=generator)).square().mean().backward()
    ddp(torch.randn(4, 1, 8, 8, generator=generator)).square().mean().backward()
    optimizer.step()
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest())
dist.destroy_process_group()
"""

FSDP = """
import torch, torch.distributed as dist, copy
import trireme.torch
from torch.distributed.fsdp import fully_shard
dist.init_process_group("trireme")
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
alone = copy.deepcopy(net)
mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
for layer in net:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(net, mesh=mesh)
inputs = torch.arange(12.0).view(2, 6) / 10
for model in (net, alone):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
for sharded, whole in zip(net.parameters(), alone.parameters()):
    assert torch.allclose(sharded.full_tensor(), whole, atol=1e-6)
dist.destroy_process_group()
"""


def outputs(test, words, world):
    results = ranks.start(words, world)
    for rank, (status, output) in enumerate(results):
        test.assertEqual(status, 0, f"rank {rank}: {output}")
    return [output for _, output in results]


class Training(unittest.TestCase):
    def example(self, backend, world):
        with tempfile.TemporaryDirectory() as folder:
            lines = outputs(self, [EXAMPLE, "--backend", backend, "--save", f"{folder}/w"], world)
            digests = set(re.findall(r"weights (\w+)", "".join(lines)))
            self.assertEqual(len(digests), 1, lines)  # all ranks have the same
            return digests.pop(), torch.load(f"{folder}/w")

    def test_the_example_learns_what_it_learns_over_gloo(self):
        digest, weights = self.example("trireme", 3)
        self.assertEqual(self.example("trireme", 3)[0], digest)  # the bits of every run
        for name, want in self.example("gloo", 3)[1].items():
            self.assertTrue(torch.allclose(weights[name], want, rtol=1e-4, atol=1e-6), name)

    def body(self, text, world, *args):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(text)
            file.flush()
            results = outputs(self, [file.name, *args], world)
            return ["\n".join(line for line in output.splitlines() if "TRIREME_TOKEN is not set" not in line) for output in results]

    def test_everything_that_ddp_does(self):
        digests = [self.body(BODY, 2, "trireme") for _ in range(2)]
        self.assertEqual(len({digest for run in digests for digest in run}), 1, digests)
        with_hook = self.body(BODY, 2, "trireme", "hook")
        self.assertEqual(len(set(with_hook)), 1)
        self.assertNotEqual(with_hook[0], digests[0][0])

    @unittest.skipUnless(TORCH_2, "torch 2 only: FSDP of 1.13 wants CUDA")
    def test_fully_sharded(self):
        self.body(FSDP, 2)


class Starters(unittest.TestCase):
    def started(self, command, env=()):
        clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        run = subprocess.run(command, env=dict(clean, OMP_NUM_THREADS="1", **dict(env)), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=ranks.LIMIT_S)
        self.assertEqual(run.returncode, 0, run.stdout)
        return sorted(re.findall(r"rank (\d) of (\d)", run.stdout))

    two = [("0", "2"), ("1", "2")]

    @unittest.skipIf(not TORCH_2 and sys.version_info >= (3, 11), "torchrun of torch 1.13 fails on Python 3.11")
    def test_torchrun(self):
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port",
                   str(ranks.free_port()), EXAMPLE]
        self.assertEqual(self.started(command), self.two)

    def test_trireme_launch(self):
        program = os.environ.get("TRIREME") or shutil.which("trireme")
        if not program:
            self.skipTest("no program 'trireme' (TRIREME=path)")
        self.assertEqual(self.started([program, "launch", "-n", "2", sys.executable, EXAMPLE]), self.two)

    def test_a_starter_that_torch_does_not_know(self):
        """What mpirun of Open MPI says to the ranks of one host."""
        port = ranks.free_port()
        common = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                  "TRIREME_STORE": f"tcp://127.0.0.1:{port}"}
        clean = {k: v for k, v in os.environ.items() if k != "RANK"}
        runs = [subprocess.Popen([sys.executable, EXAMPLE], text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT,
                                 env=dict(clean, OMP_NUM_THREADS="1", OMPI_COMM_WORLD_RANK=str(r),
                                          OMPI_COMM_WORLD_LOCAL_RANK=str(r), **common)) for r in range(2)]
        texts = [run.communicate(timeout=ranks.LIMIT_S)[0] for run in runs]
        self.assertEqual([run.returncode for run in runs], [0, 0], texts)
        self.assertEqual(sorted(re.findall(r"rank (\d) of (\d)", "".join(texts))), self.two)

    def test_mpirun(self):
        if not shutil.which("mpirun"):
            self.skipTest("no mpirun")
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, EXAMPLE]
        self.assertEqual(self.started(command), self.two)

    def test_nobody(self):
        self.assertEqual(self.started([sys.executable, EXAMPLE]), [("0", "1")])


if __name__ == "__main__":
    unittest.main()
