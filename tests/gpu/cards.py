#!/usr/bin/env python3
"""Memory and faults of cards, on the fake libcuda and NVML: usage: cards.py TRIREME"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "process"), str(TESTS / "golden")]
from launched import LIMIT_S, TRIREME  # noqa: E402 (reads and removes the program from sys.argv)
import golden  # noqa: E402

FAKE = pathlib.Path(TRIREME).parent / "tests/gpu/fake"
MLP = ["model.name=mlp", "model.hidden=[256,256]", "data.name=synthetic", "data.synthetic_count=64", "train.batch=32", "train.steps=1",
       "train.threads=1", "train.eval_every=0"]
GPT = ["model.name=gpt2", "model.n_layer=2", "model.n_head=2", "model.n_embd=64", "data.name=synthetic", "data.synthetic_tokens=true",
       "data.synthetic_count=16", "data.classes=64", "data.synthetic_width=8", "train.batch=8", "train.steps=1", "train.threads=1",
       "train.eval_every=0", "optim.name=adamw"]
# A run that is killed or fails in the middle, and has the weights of one that is not; LAUNCHES: of kernels before that.
LAUNCHES = 1000
golden.TABLE = TESTS / "gpu/expected/train.txt"
LONG = next(block for block in golden.read_table() if block.name == "mlp_killed")


class Cards(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="trireme-cards-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "run.yaml").write_text("{}\n")

    def environment(self, cuda="", nvml="", cards="1"):
        return {**{name: text for name, text in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}, "LD_LIBRARY_PATH": str(FAKE),
                "OMP_NUM_THREADS": "1", "FAKE_CUDA": cuda, "FAKE_NVML": nvml, "FAKE_CUDA_CARDS": cards}

    def run_it(self, command, *words, code=0, **faults):
        done = subprocess.run([TRIREME, command, "run.yaml", *words, "train.device=cuda"], cwd=self.folder, env=self.environment(**faults),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def ranks(self, run):
        """The newest line of steps of each rank."""
        lines = {path.stem: map(json.loads, path.read_text().splitlines()) for path in (self.folder / run / "ranks").glob("rank-*.jsonl")}
        return {name: [line for line in each if "event" not in line][-1] for name, each in lines.items()}

    def test_a_run_allocates_what_its_plan_says(self):
        cases = [[*MLP], [*MLP, "train.shards_at_once=1", "optim.clip_norm=1"], [*MLP, "-n", "3"], [*GPT, "-n", "2", "parallel.sync=zero3"],
                 [*GPT, "train.precision=bf16"], [*GPT, "-n", "2", "parallel.sync=zero1", "train.precision=bf16"],
                 [*GPT, "-n", "2", "parallel.sync=zero3", "train.precision=bf16"],
                 [*GPT, "-n", "2", "parallel.pipeline=2", "train.precision=bf16"]]
        for number, words in enumerate(cases):
            self.run_it("train", "--out", f"run{number}", *words)
            for name, line in self.ranks(f"run{number}").items():
                peak, planned = line["gpu_own_memory_peak_bytes"], line["gpu_own_memory_planned_bytes"]
                self.assertAlmostEqual(peak / planned, 1, delta=0.02, msg=f"{words} {name}: peak {peak}, planned {planned}")

    def test_a_run_that_does_not_fit_is_refused_in_one_line(self):
        text = self.run_it("train", *MLP, "-n", "3", "--out", "run", code=1, cuda="memory=4")
        said = re.findall(r"cuda:0 has 4\.0 MiB free, and the 3 ranks that share it need \d+\.\d MiB \(rank \d: weights 0\.3 MiB, .*\)", text)
        self.assertEqual(len(set(said)), 1, text)
        self.assertNotIn("cannot allocate", text)

    def test_ranks_have_cards_of_their_own_as_long_as_there_are_some(self):
        text = self.run_it("train", *MLP, "-n", "3", "--out", "run", code=1, cuda="memory=2", cards="2")
        self.assertIn("cuda:0 has 2.0 MiB free, and the 2 ranks that share it need", text)

    def test_the_largest_batch_that_the_card_holds_is_found(self):
        found = {}
        for mib in (16, 64):
            text = self.run_it("train", *MLP, "train.batch=auto", "data.synthetic_count=100000", "--dry-run", cuda=f"memory={mib}")
            found[mib] = int(re.search(r"train.batch auto: (\d+)", text).group(1))
            self.assertIn("memory of a worker on its card", text)
        self.assertGreaterEqual(found[64], 2 * found[16])
        # the double of it does not fit
        text = self.run_it("train", *MLP, f"train.batch={2 * found[16]}", "data.synthetic_count=100000", "--out", "run", code=1, cuda="memory=16")
        self.assertIn("cuda:0 has 16.0 MiB free, and this run needs", text)

    def test_layouts_are_chosen_by_memory_and_estimated_cost(self):
        text = self.run_it("plan", *GPT, "-n", "2")
        self.assertIn("estimated by the clock of their cards", text)
        rows = [json.loads(line) for line in self.run_it("plan", *GPT, "-n", "2", "--json", "--all", cuda="memory=1").splitlines()]
        refused = [row["why_not"] for row in rows if "why_not" in row]
        self.assertTrue(any("memory: a worker needs" in why for why in refused), rows)
        self.assertTrue(all(row["host_memory"] > 0 for row in rows if "host_memory" in row))

    def test_layouts_but_zero3_have_copies_of_weights_in_16_bits(self):
        matrices = 2 * 64 * (3 + 1 + 4 + 4) * 64 + 64 * 64  # of two blocks; of the vocabulary
        for precision, copies in (("f32", 0), ("bf16", 2 * matrices)):
            rows = [json.loads(line) for line in self.run_it("plan", *GPT, f"train.precision={precision}", "-n", "2", "--json", "--all").splitlines()]
            activations = {row["sync"]: row["activations"] for row in rows if row.get("data") == 2}
            for sync in ("allreduce", "zero1", "zero2"):
                self.assertEqual(activations[sync] - activations["zero3"], copies, (precision, sync, activations))

    def test_a_described_cluster_needs_no_card_and_its_rate(self):
        described = "hosts: [{name: node, count: 2, workers: 2, %smemory_gib: 64}]\n" \
            "links: {local: {gb_s: 5, latency_us: 2}, network: {gb_s: 1.2, latency_us: 20}}\n"
        (self.folder / "cluster.yaml").write_text(described % "gflops: 10000, ")
        text = self.run_it("plan", *GPT, "--cluster", "cluster.yaml", cuda="no_card")
        self.assertIn("4 workers on 2 hosts, as described; each may take 28.8 GiB", text)
        (self.folder / "cluster.yaml").write_text(described % "")
        text = self.run_it("plan", *GPT, "--cluster", "cluster.yaml", code=2)
        self.assertIn("train.device cuda: a card is not measured: want 'gflops' of each host of the cluster", text)

    def test_a_layout_that_is_found_gives_the_same_weights(self):
        hashes = {re.search(r"weights: xxh3 (\w+)", self.run_it("train", *GPT, "--out", f"run{len(words)}", *words)).group(1)
                  for words in ([], ["-n", "2", "parallel.layout=auto"])}
        self.assertEqual(len(hashes), 1)

    # --- trials ---

    def sweep(self, out, *words, cards="1", cuda="", visible=None):
        """Values of four trials, and of each the cards that its ranks had: the first one has 7 errors by NVML."""
        (self.folder / "sweep.yaml").write_text(
            "config: run.yaml\nmetric: loss\ntrials: 4\nsearch: random\nspace: {optim.lr: {log: [1e-3, 1e-1]}}\n" + "".join(f"{w}\n" for w in words) +
            "set: {model.name: mlp, 'model.hidden': [256], data.name: synthetic, data.synthetic_count: 64, train.batch: 32, train.epochs: 1, "
            "train.eval_every: 0, train.device: cuda}\n")
        more = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        done = subprocess.run([TRIREME, "tune", "sweep.yaml", "--out", out, "--json"], cwd=self.folder, text=True, timeout=LIMIT_S,
                              env={**self.environment(cuda=cuda, nvml="ecc=7", cards=cards), **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        at_once = int(re.search(r"(\d+) at once", done.stderr).group(1))
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([row["state"] for row in rows], ["done"] * 4, rows)
        had = [[line["gpu_ecc_uncorrected_total"] for _, line in sorted(self.ranks(f"{out}/trial-{n:04d}").items())] for n in range(4)]
        return at_once, {row["trial"]: row["value"] for row in rows}, had

    def test_trials_take_turns_with_the_cards(self):
        _, alone, had = self.sweep("one", "parallel: 2")
        self.assertEqual(had, [[7]] * 4)
        _, values, had = self.sweep("two", "parallel: 2", cards="2")
        self.assertEqual(values, alone)
        self.assertEqual(sorted(had[:2]), [[0], [7]])
        _, values, had = self.sweep("seen", "parallel: 2", cards="3", visible="2,0")  # the first one to have is card 2
        self.assertEqual(values, alone)
        self.assertEqual(had[:2], [[0], [7]])
        _, values, had = self.sweep("pairs", "parallel: 2", "workers: 2", cards="3")  # ranks on cards 0 and 1; 2 and 0
        self.assertEqual(values, alone)
        self.assertEqual(had[:2], [[7, 0], [0, 7]])

    def test_as_many_trials_run_at_once_as_cards_have_memory_for(self):
        for cards in ("1", "2"):
            at_once = self.sweep(f"cards{cards}", cards=cards, cuda="memory=700")[0]
            self.assertEqual(at_once, min(int(cards), len(os.sched_getaffinity(0))))

    # --- kernels ---

    def test_a_trace_has_the_kernels_of_each_step(self):
        for count in (1, 2):
            self.run_it("train", *GPT, "train.steps=4", "train.epochs=4", "train.norm_every=1", "-n", str(count), "--out", f"run{count}",
                        f"monitor.trace=trace{count}.json:1-2", cards="2")
            events = json.loads((self.folder / f"trace{count}.json").read_text())["traceEvents"]
            kernels = [event for event in events if event.get("cat") == "kernels"]
            self.assertEqual({event["pid"] for event in kernels}, set(range(count)))
            steps = [[event["name"] for event in kernels if event["args"]["step"] == step and event["pid"] == 0] for step in (1, 2)]
            for name in ("attention_dq", "gather", "step"):
                self.assertGreater(steps[0].count(name), 0, steps[0])
                self.assertEqual(steps[0].count(name), steps[1].count(name), name)
            text = subprocess.run([TRIREME, "trace", "summarize", f"trace{count}.json"], cwd=self.folder, stdout=subprocess.PIPE, text=True, check=True)
            self.assertIn("kernels, all cards together: ", text.stdout)
            said = json.loads(subprocess.run([TRIREME, "trace", "summarize", f"trace{count}.json", "--json"], cwd=self.folder, stdout=subprocess.PIPE,
                                             text=True, check=True).stdout)
            self.assertEqual(sum(row["launches"] for row in said["kernels"]), len(kernels))
            self.assertAlmostEqual(sum(row["took_us"] for row in said["kernels"]), sum(event["dur"] for event in kernels), delta=1)
            self.assertLess(sum(row["took_us"] for row in said["kernels"]), said["kernels_us"] + 1)

    # --- what NVML says ---

    def test_info_and_top_show_the_card(self):
        text = subprocess.run([TRIREME, "info"], env=self.environment(nvml="slow=0x40"), stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertIn("at 0000:17:00.0: 1.0 GiB taken, 87 % busy, 412 W, 61 degrees, 1755 MHz, slowed down by heat\n", text)
        self.run_it("train", "--out", "run", *MLP, nvml="slow=0x40")
        line = self.ranks("run")["rank-0"]
        self.assertEqual((line["gpu_utilization_ratio"], line["gpu_throttled"], line["gpu_ecc_uncorrected_total"]), (0.87, 1, 0))
        one = subprocess.run([TRIREME, "top", "run", "--once", "--json"], cwd=self.folder, stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertEqual(json.loads(one)["splits"][0]["gpu_power_watts"], 412.5)

    def test_the_rate_of_a_run_is_compared_with_the_peak_of_its_cards(self):
        def mfu_of(name, *words, **env):
            """Of one sample a second; and what one card does."""
            self.run_it("train", "--out", name, *GPT, *words, **env)
            [line] = [line for line in map(json.loads, (self.folder / name / "metrics.jsonl").read_text().splitlines()) if "mfu" in line]
            return line["mfu"] / line["samples_per_s"], json.loads((self.folder / name / "peak.json").read_text())
        one, peak = mfu_of("one")
        self.assertEqual((peak["of"], peak["flops"]), ("f32", 2 * 128 * 132 * 1980e6))  # multiply-adds x multiprocessors x clock
        half, peak = mfu_of("half", "train.precision=bf16")
        self.assertEqual((peak["of"], peak["flops"]), ("bf16", 2 * 2048 * 132 * 1980e6))
        self.assertAlmostEqual(one / half, 16)
        _, peak = mfu_of("game", "train.precision=bf16", cuda="game_card")
        self.assertEqual(peak["flops"], 2 * 256 * 132 * 1980e6)  # half of what an L40S makes
        for cards in (1, 2):
            self.assertAlmostEqual(one / mfu_of(f"cards{cards}", "-n", "2", cards=str(cards))[0], cards)

    def test_without_nvml_nothing_is_shown_and_nothing_fails(self):
        for faults in ("no_start", "mismatch"):
            self.run_it("train", "--out", faults, *MLP, nvml=faults)
            self.assertFalse([key for key in self.ranks(faults)["rank-0"] if key.startswith("gpu_") and not key.startswith("gpu_own")])
        self.run_it("train", "--out", "run", *MLP, nvml="no_ecc")  # a card that has none does not say it
        self.assertEqual({key for key in self.ranks("run")["rank-0"] if "ecc" in key}, set())

    def test_the_doctor_says_what_is_wrong_with_a_card(self):
        def rows(cuda="", nvml=""):
            text = subprocess.run([TRIREME, "doctor", "--json"], env=self.environment(cuda, nvml), stdout=subprocess.PIPE, text=True).stdout
            return {row["check"]: row for row in map(json.loads, text.splitlines()) if row["check"].startswith("gpu")}
        self.assertEqual([row["result"] for row in rows().values()], ["ok"] * 5)
        self.assertEqual(rows(nvml="no_start"), {})
        sick = rows(cuda="old_driver", nvml=f"ecc=3,rows=pending,slow=0x80,user={os.getpid()},not_persistent")
        self.assertEqual([row["result"] for row in sick.values()], ["fail", "warn", "warn", "note", "note"])
        self.assertIn("the driver is for CUDA 11.4: want one for CUDA 12 or later", sick["gpu driver"]["found"])
        self.assertIn("card 0: 3 uncorrected errors since its reset; card 0: a failing row is replaced at its next reset",
                      sick["gpu memory errors"]["found"])
        self.assertIn(f"process {os.getpid()}", sick["gpu users"]["found"])
        self.assertTrue(all(row["fix"] for row in sick.values()))
        self.assertEqual(rows(nvml="rows=failed")["gpu memory errors"]["result"], "fail")

    # --- faults ---

    def lines(self):
        """Of all ranks, those that are whole."""
        return [json.loads(line) for path in sorted((self.folder / "run/ranks").glob("*.jsonl")) for line in path.read_text().splitlines()
                if line.endswith("}")]

    def faulty(self, meanwhile=lambda launcher: None, **faults):
        """An elastic run of three ranks, one of which meets the fault of TRIGGER after some steps."""
        trigger, output = self.folder / "trigger", self.folder / "output"
        trigger.touch()
        faults = {name: text.replace("TRIGGER", str(trigger)) for name, text in faults.items()}
        with output.open("w") as file:
            launcher = subprocess.Popen([TRIREME, "train", "run.yaml", "--out", "run", *LONG.options, "checkpoint.every_steps=5", "monitor.ranks_every=1", "-n", "3",
                                         "--elastic", "1:3", "--restarts", "10", "--alone", "0", "train.device=cuda"],
                                        cwd=self.folder, env=self.environment(**faults), stdout=file, stderr=subprocess.STDOUT)
        self.addCleanup(launcher.wait)
        self.addCleanup(launcher.kill)  # the first of the two; its workers end with it
        meanwhile(launcher)
        launcher.wait(timeout=LIMIT_S)
        text = output.read_text()
        self.assertEqual(launcher.returncode, 0, text)
        self.assertEqual(list(self.folder.glob("trigger*")), [], "the run was over before the fault")
        self.assertIn(f"weights: xxh3 {LONG.cases[0].expected}", text)
        return text

    def test_the_other_ranks_continue_after_an_error_that_stays(self):
        text = self.faulty(cuda=f"sticky=TRIGGER@{LAUNCHES}")
        self.assertEqual(len(re.findall("cuda:0: .* failed: an illegal memory access was encountered", text)), 1, text)

    def test_the_other_ranks_continue_if_memory_is_full_when_ranks_form_again(self):
        text = self.faulty(cuda=f"killed=TRIGGER@{LAUNCHES},full=TRIGGER.killed")
        self.assertEqual(len(re.findall("(?m)^error: .*cuda:0: cannot allocate .* the card's memory is full", text)), 1, text)

    def test_an_xid_is_reported_and_the_run_continues(self):
        held, xid, until = self.folder / "trigger.held", self.folder / "xid", time.monotonic() + LIMIT_S

        def wait_for(launcher, is_so):
            while not is_so():
                self.assertTrue(launcher.poll() is None and time.monotonic() < until, (self.folder / "output").read_text())
                time.sleep(0.01)

        def make_xid(launcher):
            """While a rank is held within a step: its line comes after the Xid."""
            wait_for(launcher, held.exists)
            xid.touch()
            wait_for(launcher, lambda: "Xid" in (self.folder / "output").read_text())
            held.unlink()
        text = self.faulty(make_xid, cuda=f"held=TRIGGER@{LAUNCHES}", nvml=f"xid=63@{xid}")
        self.assertEqual(len(re.findall(r"\[rank \d\] cuda:0 \(Emulated card at 0000:17:00.0\): Xid 63: a failing row", text)), 1, text)
        self.assertEqual([line["event"] for line in self.lines() if line.get("text", "").startswith("cuda:0")], ["card"])
        rank = re.search(r"\[rank (\d)\] cuda:0 \(", text)[1]
        for name, line in self.ranks("run").items():
            self.assertEqual((line["gpu_xid_errors_total"], line.get("gpu_last_xid")), (1, 63) if name == f"rank-{rank}" else (0, None))

    def test_a_card_that_cannot_be_used_is_one_sentence(self):
        cases = {"no_card": "the driver finds no NVIDIA card", "no_start": "the driver cannot start: unknown error",
                 "old_driver": "the driver is for CUDA 11.4: want one for CUDA 12 or later",
                 "old_card": "cuda:0: Emulated card has compute capability 7.0: want 8.0 or later"}
        for fault, sentence in cases.items():
            text = self.run_it("train", *MLP, "--out", fault, code=1, cuda=fault)
            self.assertEqual([line for line in text.splitlines() if line.startswith("error")], [f"error: train.device: {sentence}"])
        (self.folder / "libcuda.so.1").touch()  # none, also on a machine that has one
        done = subprocess.run([TRIREME, "train", "run.yaml", *MLP, "train.device=cuda"], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={**self.environment(), "LD_LIBRARY_PATH": str(self.folder)})
        self.assertIn("error: train.device: there is no NVIDIA driver (libcuda.so.1)\n", done.stdout)

    def test_memory_that_is_full_at_any_allocation_is_one_sentence(self):
        for number in (1, 4, 8):
            text = self.run_it("train", *MLP, "--out", f"run{number}", code=1, cuda=f"full={number}")
            self.assertEqual(len(re.findall("cuda:0: cannot allocate .* the card's memory is full", text)), 1, text)


if __name__ == "__main__":
    unittest.main()
