#!/usr/bin/env python3
"""Makes gpt2.safetensors and llama.safetensors: what PyTorch computes for two tiny models.

usage: make.py FOLDER    (Debian's python3-torch; nothing else)

Each file holds initial weights ("weight.NAME", under Trireme's names: matrices [out, in], llama's queries, keys, values
and gate, up in one matrix each), tokens, targets (some of them ignored), the gradient of the mean loss of the first step
("grad.NAME"), and the losses of three steps of plain SGD. Written from Hugging Face's definitions of both models.
"""
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F

B, T, V, C, STEPS, LR = 4, 12, 23, 16, 3, 0.5


def normal(*shape, std=0.2):
    return torch.randn(*shape) * std


def gpt2_weights(layers, inner):
    w = {"wte.weight": normal(V, C), "wpe.weight": normal(T + 3, C)}
    for i in range(layers):
        h = f"h.{i}."
        for ln in ("ln_1", "ln_2"):
            w[h + ln + ".weight"], w[h + ln + ".bias"] = 1 + normal(C), normal(C)
        for name, out, wide in (("attn.c_attn", 3 * C, C), ("attn.c_proj", C, C), ("mlp.c_fc", inner, C),
                                ("mlp.c_proj", C, inner)):
            w[h + name + ".weight"], w[h + name + ".bias"] = normal(out, wide), normal(out)
    w["ln_f.weight"], w["ln_f.bias"] = 1 + normal(C), normal(C)
    return w


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def causal(q, k, v):
    """q, k, v: [B, H, T, D]"""
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    t = q.shape[-2]
    s = s.masked_fill(torch.triu(torch.ones(t, t, dtype=torch.bool), 1), float("-inf"))
    return torch.softmax(s, -1) @ v


def heads(x, count):
    return x.view(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def rows(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def gpt2_logits(w, tokens, layers, count):
    x = w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]]
    norm = lambda n, y: F.layer_norm(y, (C,), w[n + ".weight"], w[n + ".bias"], 1e-5)
    lin = lambda n, y: F.linear(y, w[n + ".weight"], w[n + ".bias"])
    for i in range(layers):
        h = f"h.{i}."
        q, k, v = lin(h + "attn.c_attn", norm(h + "ln_1", x)).split(C, 2)
        x = x + lin(h + "attn.c_proj", rows(causal(heads(q, count), heads(k, count), heads(v, count))))
        x = x + lin(h + "mlp.c_proj", gelu_new(lin(h + "mlp.c_fc", norm(h + "ln_2", x))))
    return norm("ln_f", x) @ w["wte.weight"].T


def llama_weights(layers, inner, count, kv, d):
    w = {"model.embed_tokens.weight": normal(V, C)}
    for i in range(layers):
        h = f"model.layers.{i}."
        w[h + "input_layernorm.weight"] = 1 + normal(C)
        w[h + "self_attn.qkv_proj.weight"] = normal((count + 2 * kv) * d, C)
        w[h + "self_attn.o_proj.weight"] = normal(C, count * d)
        w[h + "post_attention_layernorm.weight"] = 1 + normal(C)
        w[h + "mlp.gate_up_proj.weight"] = normal(2 * inner, C)
        w[h + "mlp.down_proj.weight"] = normal(C, inner)
    w["model.norm.weight"], w["lm_head.weight"] = 1 + normal(C), normal(V, C)
    return w


def llama3_frequencies(d, theta, factor, low, high, context):
    inv = 1.0 / (theta ** (torch.arange(0, d, 2).double() / d))
    wave = 2 * math.pi / inv
    scaled = torch.where(wave > context / low, inv / factor, inv)
    smooth = (context / wave - low) / (high - low)
    middle = (1 - smooth) * scaled / factor + smooth * scaled
    is_middle = ~(wave < context / high) & ~(wave > context / low)
    return torch.where(is_middle, middle, scaled)


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def llama_logits(w, tokens, layers, inner, count, kv, d):
    angles = torch.outer(torch.arange(tokens.shape[1]).double(), llama3_frequencies(d, 100.0, 4.0, 1.0, 4.0, 16))
    cos, sin = (f(torch.cat((angles, angles), -1)).float() for f in (torch.cos, torch.sin))
    norm = lambda n, y: w[n + ".weight"] * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6))
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(layers):
        h = f"model.layers.{i}."
        qkv = F.linear(norm(h + "input_layernorm", x), w[h + "self_attn.qkv_proj.weight"])
        q, k, v = qkv.split([count * d, kv * d, kv * d], 2)
        q, k, v = heads(q, count), heads(k, kv), heads(v, kv)
        q, k = (y * cos + rotate_half(y) * sin for y in (q, k))
        k, v = (y.repeat_interleave(count // kv, 1) for y in (k, v))
        x = x + F.linear(rows(causal(q, k, v)), w[h + "self_attn.o_proj.weight"])
        gate, up = F.linear(norm(h + "post_attention_layernorm", x), w[h + "mlp.gate_up_proj.weight"]).split(inner, 2)
        x = x + F.linear(F.silu(gate) * up, w[h + "mlp.down_proj.weight"])
    return F.linear(norm("model.norm", x), w["lm_head.weight"])


def run(weights, logits):
    tokens, targets = torch.randint(0, V, (B, T)), torch.randint(0, V, (B, T))
    targets[0, 3:5] = targets[2, 0] = -1
    out = {"weight." + name: value.clone() for name, value in weights.items()}
    out["tokens"], out["targets"] = tokens.int(), targets.int()
    losses = []
    for value in weights.values():
        value.requires_grad_(True)
    for step in range(STEPS):
        loss = F.cross_entropy(logits(weights, tokens).view(-1, V), targets.view(-1), ignore_index=-1)
        losses.append(float(loss.detach()))
        for value in weights.values():
            value.grad = None
        loss.backward()
        with torch.no_grad():
            for name, value in weights.items():
                if step == 0:
                    out["grad." + name] = value.grad.clone()
                value -= LR * value.grad
    out["losses"] = torch.tensor(losses)
    return out


def write(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        raw = value.contiguous().numpy().tobytes()
        kind = "I32" if value.dtype == torch.int32 else "F32"
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main(folder):
    torch.manual_seed(1)
    write(f"{folder}/gpt2.safetensors", run(gpt2_weights(2, 40), lambda w, t: gpt2_logits(w, t, 2, 4)))
    write(f"{folder}/llama.safetensors",
          run(llama_weights(2, 24, 4, 2, 6), lambda w, t: llama_logits(w, t, 2, 24, 4, 2, 6)))


main(sys.argv[1])
