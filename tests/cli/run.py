#!/usr/bin/env python3
"""Runs the cases of this folder: NAME.sh's output (both streams, in order) and exit code must be those in NAME.expect.

usage: run.py TRIREME [--accept] [NAME ...]

Each case runs in an empty folder with `trireme` on the PATH and the examples in $EXAMPLES. What differs between machines is masked: hashes,
rates, times, folders. Cases run side by side, one for each processor; only `make test-all` runs those named NAME_long.
--accept rewrites the expectations; read the difference before you commit it.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MASKS = [
    (r"xxh3 [0-9a-f]{16}", "xxh3 HASH"),
    (r"xxh3 HASH, got [0-9a-f]{16}", "xxh3 HASH, got ANOTHER"),
    (r"crc32c [0-9a-f]{8}", "crc32c CRC"),
    (r"crc32c CRC, got [0-9a-f]{8}", "crc32c CRC, got ANOTHER"),
    (r"samples/s [0-9.]+", "samples/s N"),
    (r"tokens/s [0-9.]+", "tokens/s N"),
    (r"[0-9.]+ samples/s", "N samples/s"),
    (r"[0-9.]+ MB/s", "N MB/s"),
    (r"[0-9.]+ MiB at most", "N MiB at most"),
    (r"\d+ of \d+ seeds, .* seeds a minute\n", ""),
    (r'"seconds":[0-9.e-]+', '"seconds":N'),
    (r"\d\d:\d\d:\d\d\.\d\d\d", "TIME"),
    (r"(runs/[a-z]+)-\d{8}-\d{6}", r"\1-DATE"),
    (r"activations [0-9.]+ [KMGT]iB \([0-9.]+ [KMGT]iB", "activations N (N"),
    (r"oneDNN [0-9.]+", "oneDNN V"),
]


def run_case(script, trireme):
    with tempfile.TemporaryDirectory() as folder:
        bin_folder = pathlib.Path(folder, "bin")
        work = pathlib.Path(folder, "work")
        bin_folder.mkdir()
        work.mkdir()
        (bin_folder / "trireme").symlink_to(trireme)
        env = {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": folder, "LC_ALL": "C", "EXAMPLES": str(HERE.parent.parent / "examples"),
               "OMP_NUM_THREADS": "1"}
        for name in ("LSAN_OPTIONS", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                env[name] = os.environ[name]
        run = subprocess.run(["sh", str(script)], cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=500)
        text = run.stdout.replace(folder, "FOLDER").replace(env["EXAMPLES"], "EXAMPLES")
    for pattern, replacement in MASKS:
        text = re.sub(pattern, replacement, text)
    return f"{text}exit {run.returncode}\n"


def main():
    args = [a for a in sys.argv[1:] if a != "--accept"]
    accept = "--accept" in sys.argv
    if not args:
        sys.exit(__doc__)
    trireme, names = pathlib.Path(args[0]).resolve(), args[1:]
    failed = 0
    scripts = sorted(HERE.glob("*.sh"))
    assert scripts, "no cases"
    skips_long = "TRIREME_TEST_ALL" not in os.environ
    scripts = [script for script in scripts
               if (script.stem in names if names else not (skips_long and script.stem.endswith("_long")))]
    with concurrent.futures.ThreadPoolExecutor(max(os.cpu_count(), 2)) as pool:
        results = list(pool.map(lambda script: run_case(script, trireme), scripts))
    for script, found in zip(scripts, results):
        expect = script.with_suffix(".expect")
        wanted = expect.read_text() if expect.exists() else ""
        if found == wanted:
            print(f"ok      {script.stem}")
        elif accept:
            expect.write_text(found)
            print(f"written {script.stem}")
        else:
            failed += 1
            print(f"FAILED  {script.stem}\n--- wanted\n{wanted}--- found\n{found}---")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
