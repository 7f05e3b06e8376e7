#!/usr/bin/env python3
"""The model of small.yaml, written in PyTorch: the same weights, batches and steps (docs/from_pytorch.md).

usage: small_torch.py TEXT FOLDER [STEPS]

Writes its initial weights into FOLDER as Hugging Face's GPT-2 (config.json, model.safetensors), trains STEPS (200) steps on
windows of TEXT one after the other, and prints a loss a line. Trireme goes the same way by

    trireme train examples/gpt/small.yaml data.path=TEXT model.from=FOLDER data.windows=fixed data.shuffle=false \\
        train.steps=STEPS train.sample_every=0
"""
import json
import math
import pathlib
import struct
import sys

import torch
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, CONTEXT, BATCH = 4, 4, 128, 64, 12
LR, MIN_LR, WARMUP, LENGTH = 1e-3, 1e-4, 100, 2000


def initial_weights(words):
    """GPT-2's: normal with 0.02, projections into the residual stream divided by the root of their number."""
    normal = lambda *shape, std=0.02: torch.randn(*shape) * std
    w = {"wte.weight": normal(words, WIDTH), "wpe.weight": normal(CONTEXT, WIDTH)}
    for layer in range(LAYERS):
        h = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            w[h + norm + ".weight"], w[h + norm + ".bias"] = torch.ones(WIDTH), torch.zeros(WIDTH)
        for name, wide, out in (("attn.c_attn", 1, 3), ("attn.c_proj", 1, 1), ("mlp.c_fc", 1, 4), ("mlp.c_proj", 4, 1)):
            std = 0.02 / math.sqrt(2 * LAYERS) if name.endswith("c_proj") else 0.02
            w[h + name + ".weight"] = normal(wide * WIDTH, out * WIDTH, std=std)  # [in, out], as Hugging Face's Conv1D
            w[h + name + ".bias"] = torch.zeros(out * WIDTH)
    w["ln_f.weight"], w["ln_f.bias"] = torch.ones(WIDTH), torch.zeros(WIDTH)
    return w


def save(weights, words, folder):
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": words, "n_positions": CONTEXT,
              "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "activation_function": "gelu_new",
              "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    table, place = {}, 0
    for name, value in weights.items():
        end = place + value.numel() * 4
        table[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [place, end]}
        place = end
    head = json.dumps(table).encode()
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(head)) + head)
        for value in weights.values():
            out.write(value.contiguous().numpy().tobytes())


def loss_of(w, tokens, targets):
    x = w["wte.weight"][tokens] + w["wpe.weight"]
    norm = lambda name, y: F.layer_norm(y, (WIDTH,), w[name + ".weight"], w[name + ".bias"])
    linear = lambda name, y: y @ w[name + ".weight"] + w[name + ".bias"]
    hidden = torch.triu(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool), 1)
    for layer in range(LAYERS):
        h = f"h.{layer}."
        q, k, v = (part.view(BATCH, CONTEXT, HEADS, -1).transpose(1, 2)
                   for part in linear(h + "attn.c_attn", norm(h + "ln_1", x)).split(WIDTH, 2))
        scores = (q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)).masked_fill(hidden, -math.inf)
        mixed = (F.softmax(scores, -1) @ v).transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH)
        x = x + linear(h + "attn.c_proj", mixed)
        x = x + linear(h + "mlp.c_proj", F.gelu(linear(h + "mlp.c_fc", norm(h + "ln_2", x)), approximate="tanh"))
    logits = norm("ln_f", x) @ w["wte.weight"].t()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rate(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    return MIN_LR + (LR - MIN_LR) * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (LENGTH - WARMUP)))


def main():
    text, folder = pathlib.Path(sys.argv[1]).read_text(), pathlib.Path(sys.argv[2])
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    data = torch.tensor([number[letter] for letter in text[: int(len(text) * 0.9)]])
    torch.manual_seed(1337)
    weights = initial_weights(len(letters))
    save(weights, len(letters), folder)
    for value in weights.values():
        value.requires_grad_(True)
    matrices = [value for value in weights.values() if value.dim() > 1]
    others = [value for value in weights.values() if value.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  betas=(0.9, 0.99))
    for step in range(steps):
        first = step * BATCH * CONTEXT
        rows = data[first : first + BATCH * CONTEXT + 1]
        loss = loss_of(weights, rows[:-1].view(BATCH, CONTEXT), rows[1:].view(BATCH, CONTEXT))
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimizer.step()
        print(f"{loss.item():.6f}", flush=True)


if __name__ == "__main__":
    main()
