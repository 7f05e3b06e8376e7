"""llm.c's CPU trainer (train_gpt2.c), built from a folder of its source, on random weights and tokens: seconds of a step of the 124M."""
import array
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys

CONTEXT, BATCH, STEPS = 256, 4, 3
MAX_T, WORDS, LAYERS, HEADS, WIDTH, PADDED = 1024, 50257, 12, 12, 768, 50304
# What the program has written in its main(): length of a sequence, batches of validation, the last step.
SETTINGS = [("int T = 64;", f"int T = {CONTEXT};"), ("val_num_batches = 5;", "val_num_batches = 1;"), ("step <= 40;", f"step < {STEPS};")]


def build(source, folder):
    """Compiles a copy whose settings are ours; returns the program. Its README's flags."""
    text = pathlib.Path(source, "train_gpt2.c").read_text()
    for old, new in SETTINGS:
        if old not in text:
            sys.exit(f"{source}/train_gpt2.c: '{old}' is not in it: its settings cannot be changed")
        text = text.replace(old, new)
    copy = pathlib.Path(folder, "train_gpt2.c")
    copy.write_text(text)
    program = pathlib.Path(folder, "train_gpt2")
    subprocess.run(["cc", "-Ofast", "-march=native", "-fopenmp", "-DOMP", f"-I{source}", str(copy), "-o", str(program), "-lm"], check=True)
    return program


def write_words(out, numbers):
    """The header of its files: 256 words, the first ones given."""
    out.write(array.array("i", [*numbers, *[0] * (256 - len(numbers))]).tobytes())


def write_weights(path):
    """Its checkpoint, version 3: the parameters in f32 after the header. A million random ones over and over: speed does not depend on what they are."""
    count = (PADDED + MAX_T) * WIDTH + LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) + 2 * WIDTH
    block = array.array("f", [random.gauss(0, 0.02) for _ in range(1 << 20)])
    with open(path, "wb") as out:
        write_words(out, [20240326, 3, MAX_T, WORDS, LAYERS, HEADS, WIDTH, PADDED])
        for left in range(count, 0, -len(block)):
            out.write(block[:left].tobytes())


def write_tokens(path):
    count = (STEPS + 1) * BATCH * CONTEXT + 1
    with open(path, "wb") as out:
        write_words(out, [20240520, 1, count])
        out.write(array.array("H", [random.randrange(WORDS) for _ in range(count)]).tobytes())


def prepare(source, folder):
    """The program and all that it reads, in `folder`."""
    program = build(source, folder)
    data = pathlib.Path(folder, "dev/data/tinyshakespeare")
    data.mkdir(parents=True)
    for name in ("train", "val"):
        write_tokens(data / f"tiny_shakespeare_{name}.bin")
    write_weights(pathlib.Path(folder, "gpt2_124M.bin"))
    return program


def run(program, threads):
    """tokens/s: the median of the steps after the first, which allocates."""
    done = subprocess.run([str(program)], cwd=program.parent, env=dict(os.environ, OMP_NUM_THREADS=str(threads)), capture_output=True, text=True)
    times = [float(ms) for ms in re.findall(r"took ([0-9.]+) ms", done.stdout)]
    if done.returncode != 0 or len(times) != STEPS:
        sys.exit(f"{program} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return {"rate": BATCH * CONTEXT / statistics.median(times[1:]) * 1e3}
