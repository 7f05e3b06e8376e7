#!/usr/bin/env python3
"""A network of PyTorch with convolution, flatten and linear layers: imported with `flatten: chw` it has PyTorch's losses over five steps,
and what is saved is a state dict with PyTorch's logits. Without an order the import is refused.

usage: torch_network.py TRIREME     (77: there is no PyTorch)
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

TRIREME, STEPS, NEAR = str(pathlib.Path(sys.argv[1]).resolve()), 5, 1e-4
LAYERS = """[conv2d: {name: conv, out: 5, kernel: 3, relu: true}, max_pool: 2, FLATTEN, linear: {name: fc, out: 7, relu: true},
             linear: {name: head, out: classes}]"""


def find_python():
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import torch, numpy"], capture_output=True).returncode == 0:
            return python
    print("skipped: no Python here has PyTorch (apt-get install python3-torch)")
    sys.exit(77)


def tensors_write(path, tensors):
    """A state dict as safetensors.torch.save_file writes it."""
    header, body = {}, b""
    for name, tensor in tensors.items():
        data = tensor.detach().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def tensors_read(path):
    import numpy
    import torch
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, row in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            first, end = row["data_offsets"]
            values = numpy.frombuffer(data[8 + length + first:8 + length + end], "<f4").reshape(row["shape"])
            found[name] = torch.from_numpy(values.copy())
    return found


def train(folder, flatten, out):
    (folder / "net.yaml").write_text(f"model: {{from: net.safetensors, layers: {LAYERS.replace('FLATTEN', flatten)}}}\n"
                                     "data: {path: ., format: npy, shuffle: false, normalize: none}\n"
                                     f"train: {{batch: 32, shards: 4, epochs: {STEPS}, threads: 1}}\noptim: {{name: sgd, lr: 0.1, momentum: 0}}\n")
    return subprocess.run([TRIREME, "train", "net.yaml", "-n", "2", "--out", out], cwd=folder, text=True, capture_output=True)


def losses_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def compare(folder):
    import numpy
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = torch.nn.Sequential()
    for name, module in (("conv", torch.nn.Conv2d(3, 5, 3)), ("relu", torch.nn.ReLU()), ("pool", torch.nn.MaxPool2d(2)),
                         ("flatten", torch.nn.Flatten()), ("fc", torch.nn.Linear(5 * 3 * 4, 7)), ("act", torch.nn.ReLU()),
                         ("head", torch.nn.Linear(7, 4))):
        net.add_module(name, module)
    for parameter in net.parameters():
        parameter.data *= 3
    images, classes = torch.randn(32, 3, 8, 10), torch.arange(32) % 4
    for part in "train", "test":
        numpy.save(folder / f"x_{part}.npy", numpy.ascontiguousarray(images.numpy().transpose(0, 2, 3, 1)))
        numpy.save(folder / f"y_{part}.npy", classes.numpy().astype("int32"))
    tensors_write(folder / "net.safetensors", net.state_dict())
    optimizer, wanted = torch.optim.SGD(net.parameters(), lr=0.1), []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(net(images), classes)
        wanted.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    refused = train(folder, "flatten", "refused")
    assert refused.returncode == 2 and "flatten: chw" in refused.stderr, refused
    ran = train(folder, "flatten: chw", "run")
    assert ran.returncode == 0, ran.stderr
    found = losses_of(folder / "run")
    apart = max(abs(a - b) for a, b in zip(wanted, found, strict=True))
    print(f"{STEPS} losses from {wanted[0]:.4f} to {wanted[-1]:.4f}, at most {apart:.1e} apart")
    assert apart < NEAR
    other = train(folder, "flatten: hwc", "other")
    assert other.returncode == 0 and abs(losses_of(folder / "other")[0] - wanted[0]) > 100 * NEAR, "the order has no effect"

    saved = tensors_read(max((folder / "run").glob("checkpoints/*/model.safetensors")))
    logits = net(images)
    net.load_state_dict(saved)
    apart = (net(images) - logits).abs().max().item()
    print(f"the logits of what was saved are at most {apart:.1e} apart")
    assert apart < NEAR


def main():
    if len(sys.argv) == 2:
        python = find_python()
        sys.exit(subprocess.run([python, "-W", "ignore", __file__, TRIREME, "inside"]).returncode)
    with tempfile.TemporaryDirectory() as folder:
        compare(pathlib.Path(folder))


main()
