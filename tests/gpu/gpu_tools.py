#!/usr/bin/env python3
"""tools/gpu_bundle and tools/gpu_check, rehearsed on the emulator: usage: gpu_tools.py TRIREME Tools|Whole"""
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve().parent
TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


LIMIT_S = 240 if "Tools" in sys.argv else 880  # ctest's is 300, 900


def run(*command, folder=None, **env):
    """Of a check that takes too long SIGTERM ends its children too."""
    with subprocess.Popen([str(word) for word in command], cwd=folder, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        try:
            text, _ = process.communicate(timeout=LIMIT_S)
        except BaseException:
            process.terminate()
            raise
    return subprocess.CompletedProcess(command, process.returncode, text)


def processes_of(group):
    """Those of a process group that live."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def children_of(parent):
    path = pathlib.Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


class Tools(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def test_a_bundle_checks_the_machine_to_which_it_was_copied(self):
        bundle = self.folder / "bundle"
        made = run(TOOLS / "gpu_bundle", "--build", BUILD, "--most", "256", f"{bundle}.tar.gz")
        self.assertEqual(made.returncode, 0, made.stdout)
        with tarfile.open(f"{bundle}.tar.gz") as archive:
            archive.extractall(self.folder)
        done = run("tools/gpu_check", "--fake", "--few", "facts", "1", "driver", "ops", "gemm", "attention", "training", "nccl", "faults", "gpt2", "profile",
                   "--seconds", LIMIT_S - 20, "--out", "made/by/card.md", folder=bundle, FAKE_NVML="ecc=2")
        self.assertEqual(done.returncode, 0, done.stdout)
        head, table, *tables = (bundle / "made/by/card.md").read_text().split("\n\n")
        self.assertIn(f"Built from {(bundle / 'COMMIT').read_text().strip()}. ", head)
        names = ["facts", "ceilings", "driver", "ops", "gemm", "gpt2", "attention", "nccl", "training", "profile", "faults"]
        found = {row[1]: row for row in (line.split(" | ") for line in table.splitlines()[2:])}
        self.assertEqual({name: row[2] for name, row in found.items()}, {name: "passed" for name in names}, done.stdout)
        rows = [found[name] for name in ("facts", "ceilings", "gemm", "training", "nccl", "faults")]
        self.assertRegex(found["driver"][4], r"a memfd, pinned: [\d.]+ GB/s from it, [\d.]+ GB/s to it; overlap: a copy in of .*; "
                                             r"memory of the card for another process: this driver has no cuIpcGetMemHandle; .*: a second process "
                                             r"pins the same memfd: [\d.]+ GB/s from it, [\d.]+ GB/s to it \|$")
        self.assertEqual([title.split(",")[0] for title in tables[::2]], ["Attention", "One step of a small GPT-2"])
        self.assertEqual(len(tables[1].splitlines()), 2 + 4)  # two shapes, two passes
        self.assertRegex(tables[1], r"\| small grouped: 2 x 8 \| 2 \(1\) x 16 \| backward \| [\d.]+ \| [\d.e-]+ \| \d+ % \| (-|[\d.]+) \|")
        self.assertRegex(found["attention"][4], "2 shapes in bf16, 2 with the same bits in 20 runs and any place in a batch and near f32")
        self.assertGreater(len(tables[3].strip().splitlines()), 2 + 10)
        self.assertRegex(tables[3], r"\| cublasLt \d+x\d+x\d+ \| [\d.]+ \| \d+ % \| \d+ \|")
        self.assertRegex(found["gpt2"][4], r"8 shards: [\d,]+ tokens/s .*; 4 shards: [\d,]+ tokens/s .*; 16 shards: [\d,]+ tokens/s")
        self.assertIn("Emulated card", rows[0][4])
        self.assertIn("cublasLt 13.1.0 32^3", rows[1][4])
        self.assertIn("6 products, 0 by our own kernels: small output 16x32x24 x8: 1.0.1.0.0.0.0.0.0 (0 refused)", rows[2][4])
        self.assertIn("12 of 12 refusals are those of the fake", rows[2][4])
        for row in (rows[3], rows[5]):
            self.assertIn("0 with other weights", row[4])
        self.assertRegex(found["ops"][4], r"^ops: all 111 hashes are the emulator's; tokens: all 12 hashes are the emulator's; ops agree with the reference")
        self.assertIn("train: all 1 hashes are the emulator's", rows[3][4])
        block = re.compile("^mlp_f16 .*", re.M)
        self.assertEqual(block.findall((bundle / "made/by/train.card.txt").read_text()),
                         block.findall((bundle / "tests/gpu/expected/train.txt").read_text()))
        self.assertIn("exit code 0: ", (bundle / "made/by/card.log").read_text())
        self.assertIn("NCCL 2.28.9, 1 rank: the canonical order has the bits of the host's sum, any order is exact", rows[4][4])
        self.assertIn("NCCL 2.28.9, 2 ranks: the canonical order", rows[4][4])
        self.assertIn("ranks 0 and 1 are both on the card at 0000:17:00.0", rows[4][4])
        self.assertIn("412 W, 61 degrees, 1755 MHz, 2 uncorrected memory errors; doctor: gpu memory errors: card 0: 2 uncorrected", rows[0][4])

    def test_hashes_are_in_their_file_as_they_come(self):
        """A card whose time runs out has given some."""
        trigger, path = self.folder / "trigger", self.folder / "ops.txt"
        trigger.touch()
        env = {**os.environ, "LD_LIBRARY_PATH": str(BUILD / "tests/gpu/fake"), "FAKE_CUDA": f"held={trigger}@60"}
        program = subprocess.Popen([BUILD / "tests/gpu/gpu_test_ops", "--cuda", "--few", "--accept", path], env=env, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        while program.poll() is None and not trigger.with_suffix(".held").exists():
            time.sleep(0.01)
        lines = path.read_text().splitlines()
        program.kill()
        program.wait()
        self.assertEqual(set(lines) - set((TOOLS.parent / "tests/gpu/expected/ops.txt").read_text().splitlines()), set())
        self.assertTrue(2 < len(lines) < 60, lines)

    def test_a_section_that_fails_says_why_and_the_others_run(self):
        done = run(TOOLS / "gpu_check", "--fake", "--build", BUILD, "0", "gemm", folder=self.folder, FAKE_CUDA="no_card")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex((self.folder / "gpu_check.md").read_text(),
                         r"\| 0 \| facts \| failed \| \d+ \| the driver finds no NVIDIA card \(gpu_check.log\) \|")
        self.assertIn("there is no cublasLt", done.stdout)

    def build_with(self, **programs):
        """A build some of whose programs are shell scripts; FOLDER in them is tests/gpu/expected."""
        (self.folder / "build/tests/gpu").mkdir(parents=True)
        (self.folder / "build/trireme").symlink_to(BUILD / "trireme")
        for path in (BUILD / "tests/gpu").glob("*"):
            if path.name not in programs and not path.name.startswith("CMake"):
                (self.folder / "build/tests/gpu" / path.name).symlink_to(path)
        for name, text in programs.items():
            path = self.folder / "build/tests/gpu" / name
            path.write_text(f"#!/bin/sh\n{text.replace('FOLDER', str(TOOLS.parent / 'tests/gpu/expected'))}\n")
            path.chmod(0o755)
        return self.folder / "build"

    def test_all_that_a_command_printed_before_it_failed_is_in_the_log(self):
        build = self.build_with(gpu_measure_attention="for i in 1 2 3 4 5; do echo line $i; done; echo why >&2; exit 3")
        done = run(TOOLS / "gpu_check", "--fake", "--build", build, "attention", folder=self.folder)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex((self.folder / "gpu_check.md").read_text(), r" \| failed \| \d+ \| exit code 3: why \(gpu_check.log\) \|")
        self.assertRegex((self.folder / "gpu_check.log").read_text(),
                         r"=== attention, [\d.]+ s, exit code 3: .*gpu_measure_attention small\n--- stdout\nline 1\n(line .\n){4}--- stderr\nwhy\n")

    def test_hashes_of_the_card_come_back_where_they_differ(self):
        accept = 'eval "file=\\${$#}"; sed "%s" FOLDER/%s.txt > "$file"'
        build = self.build_with(gpu_test_ops=accept % ("1s/....$/beef/; $ d", "ops"),
                                gpu_test_tokens=accept % ("", "tokens") + '; echo "[  FAILED  ] one_test"; exit 1')
        done = run(TOOLS / "gpu_check", "--fake", "--build", build, "ops", folder=self.folder)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex((self.folder / "gpu_check.md").read_text(),
                         r"ops: 2 of \d+ differ, 1 absent: linear_small f32, [\w ]+; tokens: all 12 hashes are the emulator's; "
                         r"tokens: one_test failed, exit code 1; tensor cores: 0 of 64 rows of results differ \(mma.card.txt\); another result")
        self.assertIn("beef\n", (self.folder / "ops.card.txt").read_text())
        step = (self.folder / "mma.card.txt").read_text().splitlines()
        self.assertEqual(len(step), 4 * (16 + 8 + 16))

    def test_one_step_of_tensor_cores_is_the_sum_of_products(self):
        done = run(BUILD / "tests/gpu/gpu_measure_products", "dump", LD_LIBRARY_PATH=BUILD / "tests/gpu/fake")
        rows = {}
        for line in done.stdout.splitlines():
            name, bits = line.split(": ")
            kind, what, which, _ = name.split()
            wide = which == "c"
            values = [struct.unpack("<f" if wide or kind == "bf16" else "<e",
                                    (int(word, 16) << (16 if kind == "bf16" and not wide else 0)).to_bytes(4 if wide or kind == "bf16" else 2, "little"))[0]
                      for word in bits.split()]
            rows.setdefault((kind, what), {}).setdefault(which, []).append(values)
        self.assertEqual(len(rows), 4, done.stdout)
        for (kind, what), of in rows.items():
            for got, left in zip(of["c"], of["a"], strict=True):
                for value, right in zip(got, of["b"], strict=True):
                    want = sum(x * y for x, y in zip(left, right, strict=True))
                    self.assertAlmostEqual(value, want, delta=0 if what == "whole" else 1e-4, msg=f"{kind} {what}")

    def test_the_probe_says_why_it_refuses_an_algorithm(self):
        done = run(TOOLS / "gpu_check", "--fake", "--build", BUILD, "gemm", folder=self.folder, FAKE_CUBLASLT="batch,tail,refuses")
        self.assertEqual(done.returncode, 0, done.stdout)
        counts = re.search(r"of (\d+) algorithms that the heuristic offers: (\d+) passes, (\d+) sum differs, (\d+) batch count differs, (\d+) refuses to run",
                           done.stdout)
        numbers = [int(word) for word in counts.groups()]
        self.assertEqual(numbers[0], sum(numbers[1:]))
        self.assertTrue(all(numbers), done.stdout)

    def test_pytorch_is_compared_or_reported_as_not_available(self):
        done = run(TOOLS / "gpu_check", "--fake", "--build", BUILD, "pytorch", "--seconds", LIMIT_S - 20, folder=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex((self.folder / "gpu_check.md").read_text(),
                         r"\| 6 \| pytorch \| (passed|not available) \| \d+ \| tiny trireme [\d,]+/s(, \d+ MiB)?; tiny eager ")

    def test_sections_that_have_no_time_say_so(self):
        done = run(TOOLS / "gpu_check", "--fake", "--build", BUILD, "facts", "gemm", "--seconds", "1", folder=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout)
        rows = [line.split(" | ") for line in (self.folder / "gpu_check.md").read_text().splitlines()[4:]]
        self.assertEqual([row[1:3] + row[4:] for row in rows], [["facts", "not available", "no time was left |"],
                                                               ["gemm", "not available", "no time was left |"]])

    def test_a_check_that_is_told_to_end_leaves_nobody_behind(self):
        with subprocess.Popen([str(TOOLS / "gpu_check"), "--fake", "--build", str(BUILD), "faults"], cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as check:
            self.addCleanup(check.kill)
            end, groups = time.monotonic() + LIMIT_S, []
            while check.poll() is None and time.monotonic() < end and not groups:
                groups = [pid for pid in children_of(check.pid) if pid in processes_of(pid)]
                time.sleep(0.005)
            self.assertTrue(groups, "it has started nobody")
            check.send_signal(signal.SIGTERM)
            self.assertEqual(check.wait(timeout=LIMIT_S), 128 + signal.SIGTERM)
        while processes_of(groups[0]) and time.monotonic() < end:
            time.sleep(0.005)
        self.assertEqual(processes_of(groups[0]), [])
        self.assertRegex((self.folder / "gpu_check.md").read_text(), r"\| faults \| failed \| \d+ \| (.*; )?cut off \(gpu_check.log\) \|")
        self.assertIn("=== faults, ", (self.folder / "gpu_check.log").read_text())

    def test_an_order_to_end_that_comes_while_a_command_starts_ends_it(self):
        """SIGTERM within subprocess.Popen, when the command runs and has no name yet in gpu_check."""
        code = f"""if True:
            import importlib.machinery, importlib.util, os, signal, subprocess, sys
            loader = importlib.machinery.SourceFileLoader("gpu_check", "{TOOLS / 'gpu_check'}")
            check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
            loader.exec_module(check)
            class Popen(subprocess.Popen):
                def __init__(self, words, start_new_session=False, **more):
                    super().__init__(["sleep", "1000"] if start_new_session else words, start_new_session=start_new_session, **more)
                    if start_new_session:
                        open("started", "w").write(str(self.pid))
                        os.kill(os.getpid(), signal.SIGTERM)
            subprocess.Popen = Popen
            sys.argv = ["gpu_check", "--fake", "--build", "{BUILD}", "faults"]
            sys.exit(check.main())
        """
        done = run(sys.executable, "-c", code, folder=self.folder)
        self.assertEqual(done.returncode, 128 + signal.SIGTERM, done.stdout)
        self.assertIn("cut off", (self.folder / "gpu_check.md").read_text())
        self.assertIn("=== faults, ", (self.folder / "gpu_check.log").read_text())
        self.assertEqual(processes_of(int((self.folder / "started").read_text())), [])

    def test_bad_words_and_bundles_that_are_too_large_are_refused(self):
        done = run(TOOLS / "gpu_check", "--build", BUILD, "speed", folder=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("section: want 0 to 13 or facts", done.stdout)
        made = run(TOOLS / "gpu_bundle", "--build", BUILD, "--most", "1", self.folder / "bundle")
        self.assertEqual(made.returncode, 1)
        self.assertIn("at most 1", made.stdout)
        self.assertFalse((self.folder / "bundle").exists())


class Whole(unittest.TestCase):
    def test_one_call_rehearses_all_sections(self):
        """All cases of all ops, all models: on a card nothing runs for the first time but the card."""
        with tempfile.TemporaryDirectory() as folder:
            done = run(TOOLS / "gpu_check", "--fake", "--build", BUILD, "--seconds", LIMIT_S - 20, folder=folder)
            self.assertEqual(done.returncode, 0, done.stdout)
            rows = [line.split(" | ") for line in (pathlib.Path(folder) / "gpu_check.md").read_text().split("\n\n")[1].splitlines()[2:]]
            found = {row[1]: row[2:] for row in rows}
            self.assertEqual([row[0] for row in rows], [f"| {number}" for number in range(14)])
            for name, row in found.items():
                if name != "pytorch":  # which may not be installed
                    self.assertEqual(row[0], "not available" if name == "compiled" else "passed", done.stdout)
            self.assertRegex(found["training"][2], r"train: all \d\d hashes are the emulator's")
            for name in ("ops", "tokens"):
                self.assertIn(f"{name}: all ", found["ops"][2])
                self.assertEqual((pathlib.Path(folder) / f"{name}.card.txt").read_text(),
                                 (TOOLS.parent / f"tests/gpu/expected/{name}.txt").read_text())


if __name__ == "__main__":
    unittest.main()
