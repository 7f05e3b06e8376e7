"""Commands of a page of docs/, run as they stand."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"

def commands(page):
    """Lines with a prompt, and those that continue them."""
    return "\n".join(m.group(1) for m in re.finditer(r"^    [$>] (.*)$", (DOCS / page).read_text(), re.M))

def run(page, timeout, prepare=None, **variables):
    """What they print, and the hashes of weights in it; a command that fails ends the test. prepare(folder) makes what they need."""
    program = pathlib.Path(sys.argv[1]).resolve()
    base = {name: value for name, value in os.environ.items() if not name.startswith("TRIREME_")}
    # One thread: two that wait for each other on cores that other tests use are twenty times slower.
    env = dict(base, OMP_NUM_THREADS="1", PATH=f"{program.parent}:{os.environ['PATH']}", **variables)
    with tempfile.TemporaryDirectory() as folder:
        if prepare:
            prepare(folder)
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", commands(page)], cwd=folder, env=env, text=True, timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{page}: the commands ended with {done.returncode}")
    return done.stdout, re.findall(r"^weights: xxh3 ([0-9a-f]{16})$", done.stdout, re.M)
