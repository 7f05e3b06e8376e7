#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention, causal and in bf16, for tools/gpu_check: prints one JSON object for each shape, {"forward_ms",
"backward_ms", "how"}, or {"missing": why} and nothing else.

usage: attention.py [--cpu] BATCH,TOKENS,HEADS,KV_HEADS,WIDTH ...
"""
import json
import sys
import time

from card_torch import DEVICE, missing, torch, wait

F, TURNS = torch.nn.functional, 10 if DEVICE == "cuda" else 1
if not hasattr(F, "scaled_dot_product_attention"):
    missing(f"PyTorch {torch.__version__} has no scaled_dot_product_attention")


def milliseconds(call):
    """Of one call, the best of three runs."""
    best = float("inf")
    for _ in range(3):
        wait()
        began = time.perf_counter()
        for _ in range(TURNS):
            call()
        wait()
        best = min(best, (time.perf_counter() - began) / TURNS)
    return 1e3 * best


def main():
    for text in (word for word in sys.argv[1:] if not word.startswith("--")):
        batch, tokens, heads, kv_heads, width = map(int, text.split(","))
        q, k, v = (torch.randn(batch, count, tokens, width, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
                   for count in (heads, kv_heads, kv_heads))
        how = "SDPA"
        if kv_heads != heads:  # flash attention of all versions takes as many keys as queries
            k, v = (x.detach().repeat_interleave(heads // kv_heads, 1).requires_grad_() for x in (k, v))
            how = "SDPA, keys repeated"
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        dy = torch.randn_like(y)
        forward_ms = milliseconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        backward_ms = milliseconds(lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
        print(json.dumps({"forward_ms": forward_ms, "backward_ms": backward_ms, "how": f"PyTorch {torch.__version__}, {how}"}), flush=True)


main()
