#!/usr/bin/env python3
"""The small GPT of examples/gpt in PyTorch and in Trireme: the losses of 20 steps agree within 1e-4.

usage: gpt_curve.py TRIREME     (77: there is no PyTorch)
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRIREME, STEPS, NEAR = sys.argv[1], 20, 1e-4


def find_python():
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
            return python
    print("skipped: no Python here has PyTorch (apt-get install python3-torch)")
    sys.exit(77)


def main():
    python = find_python()
    with tempfile.TemporaryDirectory() as folder:
        text, initial, run = f"{folder}/text", f"{folder}/initial", f"{folder}/run"
        pathlib.Path(text).write_text("".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))))
        wanted = subprocess.run([python, ROOT / "examples/gpt/small_torch.py", text, initial, str(STEPS)], check=True,
                                stdout=subprocess.PIPE, text=True).stdout
        wanted = [float(line) for line in wanted.split()]
        subprocess.run([TRIREME, "train", ROOT / "examples/gpt/small.yaml", f"data.path={text}", f"model.from={initial}", "data.windows=fixed",
                        "data.shuffle=false", f"train.steps={STEPS}", "train.sample_every=0", "data.test_limit=12", "-n", "2", "--out", run], check=True,
                       stdout=subprocess.DEVNULL)
        found = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
        found = [line["loss"] for line in found if "loss" in line]
        apart = [abs(a - b) for a, b in zip(wanted, found, strict=True)]
        print(f"{STEPS} losses from {wanted[0]:.4f} to {wanted[-1]:.4f}, at most {max(apart):.1e} apart")
        return 0 if len(apart) == STEPS and max(apart) < NEAR and wanted[-1] < wanted[0] else 1


sys.exit(main())
