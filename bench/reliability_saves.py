"""What a checkpoint beside the training costs it, of a GPT-2 124M with AdamW: bench/reliability saves."""
import json
import math
import os
import pathlib
import statistics
import subprocess

CONFIG = """
model: {name: gpt2}
data: {name: synthetic, synthetic_tokens: true, synthetic_count: 512, synthetic_width: 256, classes: 50257}
optim: {name: adamw, lr: 3e-4, weight_decay: 0.1}
train: {batch: 4, shards: 4, epochs: 1000, eval_every: 0, steps: 18}
checkpoint: {every_steps: 4}
"""
MINUTE_S = 60


def cost(steps, saves):
    """Seconds that each save took from the training: its pause, and how much longer the steps were beside which it was written."""
    quiet, beside = dict(steps), []
    del quiet[0]  # the first one warms up
    for step, pause, took in saves:
        under_way = [quiet.pop(s) for s in range(step + 1, step + 1 + math.ceil(took / statistics.median(steps.values()))) if s in quiet]
        beside.append((pause, len(under_way), sum(under_way)))
    usual = statistics.median(quiet.values())
    return [pause + total - count * usual for pause, count, total in beside], usual


def saves(args):
    threads = os.cpu_count()
    config, lines = pathlib.Path(args.scratch, "gpt2.yaml"), pathlib.Path(args.scratch, "run/metrics.jsonl")
    config.write_text(CONFIG)
    subprocess.run([args.build / "trireme", "train", config, "--out", lines.parent, f"train.threads={threads}"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    steps = {line["step"]: 4 / line["samples_per_s"] for line in records if "samples_per_s" in line}
    made = [(line["step"], line["checkpoint_paused"], line["checkpoint_took"]) for line in records if line.get("checkpoint_paused") is not None]
    made = [save for save in made if save[0] + 1 in steps]  # not the last one, which nobody computes beside
    costs, usual = cost(steps, made)
    share = statistics.median(costs) / MINUTE_S
    size = next(line["checkpoint_bytes"] for line in records if "checkpoint_bytes" in line)
    return (f"{len(made)} saves of {size / 1e6:.0f} MB beside steps of {usual:.2f} s: paused {statistics.median(s[1] for s in made):.2f} s "
            f"(at most {max(s[1] for s in made):.2f}), written in {statistics.median(s[2] for s in made):.1f} s, {statistics.median(costs):.2f} s of training lost each "
            f"({min(costs):.2f} to {max(costs):.2f}): {share:.1%} at one a minute"), share < 0.03
