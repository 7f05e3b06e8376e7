#!/usr/bin/env python3
"""Training whose gradients NCCL sums between cards, on the fake libcuda and NCCL: usage: nccl.py TRIREME [Sums|Fails|Lost]"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "process"))
from launched import LIMIT_S, TRIREME, ranks_of  # noqa: E402 (reads and removes the program from sys.argv)

GPU = pathlib.Path(TRIREME).parent / "tests/gpu"
BOTH, WITHOUT = f"{GPU}/fake_nccl:{GPU}/fake", f"{GPU}/fake"


def recorded(name):
    """The weights of a block of the table."""
    table = pathlib.Path(__file__).with_name("expected") / "train.txt"
    return re.search(rf"(?m)^{name} (\w+)$", table.read_text())[1]


# mlp of expected/train.txt, in several buckets
MLP = ["model.name=mlp", "model.hidden=[24,12]", "data.name=synthetic", "data.synthetic_count=210", "train.batch=50", "train.epochs=2",
       "train.threads=1", "optim.name=adam", "optim.lr=0.01", "optim.clip_norm=1", "parallel.bucket_kib=1", "train.eval_every=0"]
MLP_HASH = recorded("mlp")
# mlp_killed of expected/train.txt
LONG = ["model.name=mlp", "model.hidden=[16]", "data.name=synthetic", "data.synthetic_count=120", "train.batch=24", "train.epochs=400",
        "train.steps=120", "train.threads=1", "optim.name=adamw", "optim.lr=0.001", "train.eval_every=0"]
LONG_HASH = recorded("mlp_killed")
EXCHANGES = 30  # of a rank, before one is lost in the middle
# gpt2 of expected/train.txt: its head shares the weights of its embedding
GPT2 = ["model.name=gpt2", "model.n_layer=2", "model.n_head=2", "model.n_embd=16", "model.resid_pdrop=0.1", "model.attn_pdrop=0.1",
        "data.name=synthetic", "data.synthetic_tokens=true", "data.synthetic_count=24", "data.classes=20", "data.synthetic_width=8", "train.batch=8",
        "train.epochs=1", "train.threads=1", "optim.name=adamw", "optim.lr=1e-2", "optim.weight_decay=0.1", "optim.clip_norm=1"]
GPT2_HASH = recorded("gpt2")
BY_NCCL = "gradient sums: by NCCL 2.28.9, between cards\n"


class OnCards(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="trireme-nccl-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "run.yaml").write_text("{}\n")

    def environment(self, nccl="", cuda="", cards="5", seed="1", libraries=BOTH):
        return {**os.environ, "LD_LIBRARY_PATH": libraries, "OMP_NUM_THREADS": "1", "FAKE_NCCL": nccl, "FAKE_CUDA": cuda, "FAKE_CUDA_CARDS": cards,
                "FAKE_CUDA_SEED": seed}

    def train(self, *words, code=0, **faults):
        done = subprocess.run([TRIREME, "train", "run.yaml", *words, "train.device=cuda"], cwd=self.folder, env=self.environment(**faults),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def check(self, text, line, weights=MLP_HASH):
        self.assertEqual(text.count("gradient sums: "), 1, text)
        self.assertIn(line, text)
        self.assertIn(f"weights: xxh3 {weights}\n", text)


class Sums(OnCards):
    def test_the_weights_are_those_of_one_rank(self):
        for ranks in (2, 3, 5):
            self.check(self.train("-n", str(ranks), *MLP, seed=str(ranks)), BY_NCCL)
            for sync in ("zero1", "zero2", "zero3"):
                self.check(self.train("-n", str(ranks), *MLP, f"parallel.sync={sync}", seed=str(ranks)), BY_NCCL)
        for sync in ("allreduce", "zero2", "zero3"):
            self.check(self.train("-n", "2", *MLP, f"parallel.sync={sync}", "parallel.overlap=false", "train.shards_at_once=1"), BY_NCCL)
        self.check(self.train("-n", "2", *MLP, "parallel.sync=zero3", "parallel.overlap=false"), BY_NCCL)

    def test_so_they_are_where_a_layer_is_read_twice_and_larger_than_all_others(self):
        for sync in ("zero2", "zero3"):
            self.check(self.train("-n", "3", *GPT2, f"parallel.sync={sync}", "parallel.bucket_kib=1"), BY_NCCL, GPT2_HASH)

    def test_stages_of_a_pipeline_sum_each_its_own_and_share_those_of_tied_weights(self):
        for sync in ("allreduce", "zero1", "zero3"):
            self.check(self.train("-n", "4", *GPT2, "parallel.pipeline=2", f"parallel.sync={sync}"), BY_NCCL, GPT2_HASH)

    def test_ranks_without_nccl_or_cards_of_their_own_say_so_and_sum_on_the_host(self):
        self.check(self.train("-n", "3", *MLP, cards="2"),
                   "gradient sums: on the host: ranks 0 and 2 are both on the card at 0000:17:00.0 (cuda:0, cuda:0): NCCL needs one card for each "
                   "rank\n")
        self.check(self.train("-n", "2", *MLP, libraries=WITHOUT), "gradient sums: on the host: rank 0: there is no NCCL (libnccl.so.2)\n")
        self.check(self.train("-n", "2", *MLP, nccl="no_version1"),
                   "gradient sums: on the host: rank 1: NCCL does not tell its version: unhandled system error\n")
        self.check(self.train("-n", "2", *MLP, "parallel.backend=host"), "gradient sums: on the host: parallel.backend is host\n")

    def test_instances_of_a_card_have_memory_of_their_own_and_sum_on_the_host(self):
        """A process sees one of them (MIG)."""
        instance = "MIG-face0000-0000-0000-0000-00000000000"
        (self.folder / "rank.sh").write_text(f'CUDA_VISIBLE_DEVICES={instance}$TRIREME_RANK exec "$@"\n')
        wide = [*MLP, "model.hidden=[256,256]", "--out"]
        alone = self.train(*wide, "alone", cuda="mig", cards="2")
        for words, code in ([[], 0], [["parallel.backend=nccl"], 2]):
            done = subprocess.run([TRIREME, "launch", "-n", "2", "--", "sh", "rank.sh", TRIREME, "train", "run.yaml", *wide, "two", *words,
                                   "train.device=cuda"], cwd=self.folder, env=self.environment(cuda="mig,memory=4", cards="2"), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(done.returncode, code, done.stdout)
            self.assertIn("ranks 0 and 1 are on two instances (MIG) of the card at 0000:17:00.0 (cuda:0, cuda:0): NCCL needs one card for each rank",
                          done.stdout)
            if code == 0:
                self.check(done.stdout, "gradient sums: on the host: ", re.search(r"weights: xxh3 (\w+)", alone)[1])
                lines = [json.loads(path.read_text().splitlines()[-1]) for path in (self.folder / "two/ranks").glob("rank-*.jsonl")]
                both = sum(line["gpu_own_memory_planned_bytes"] for line in lines)
                self.assertGreater(both, 4 << 20)  # more than one of them has
                self.assertEqual([line["gpu_memory_total_bytes"] for line in lines], [8 << 30] * 2)
        text = self.train("-n", "2", *wide, "one", code=1, cuda="mig,memory=4", cards="2")  # both on the first one
        self.assertIn("cuda:0 has 4.0 MiB free, and the 2 ranks that share it need", text)

    def test_a_program_that_closes_its_job_waits_for_ranks_that_are_behind(self):
        """Step by step; the last rank gets the others' weights when rank 0 has nothing left to do."""
        held = self.folder / "held"
        words = [*MLP, "parallel.bucket_kib=16384", "train.device=cuda"]
        for ranks, sync in ((1, "allreduce"), (2, "zero1"), (3, "zero2")):
            done = subprocess.run([TRIREME, "launch", "-n", str(ranks), "--", GPU / "gpu_steps", held, *words, f"parallel.sync={sync}"], cwd=self.folder,
                                  env=self.environment(nccl=f"held={held}"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=LIMIT_S, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            weights = re.findall(r"step 3 of \d+, weights: xxh3 (\w+)", done.stdout)
            alone = weights if ranks == 1 else alone
            self.assertEqual(weights, alone * ranks, done.stdout)
            self.assertFalse(held.exists())
            self.assertNotIn("finalize", done.stdout)

    def test_where_nccl_is_wanted_and_cannot_be_the_run_is_refused_in_one_line(self):
        for words, faults, why in ([[], {"nccl": "old1"}, "want the same version of NCCL on all ranks: rank 0 has NCCL 2.28.9, rank 1 has NCCL 2.27.3"],
                                   [["parallel.sync=local"], {}, "parallel.sync is local"]):
            text = self.train("-n", "2", *MLP, "parallel.backend=nccl", *words, code=2, **faults)
            self.assertEqual(set(re.findall("(?m)^error.*", text)), {f"error: parallel.backend nccl: {why}"}, text)

    def test_all_ranks_decide_alike_where_the_ranks_of_one_stage_are_on_two_hosts(self):
        other = ["unshare", "-r", "--ipc"]  # another host, to the ranks of this one
        if subprocess.run([*other, "true"], check=False, capture_output=True).returncode != 0:
            self.skipTest("no namespaces for IPC here")
        (self.folder / "rank.sh").write_text(f'if [ "$TRIREME_RANK" = 3 ]; then exec {" ".join(other)} "$@"; fi\nexec "$@"\n')
        done = subprocess.run([TRIREME, "launch", "-n", "4", "sh", "rank.sh", TRIREME, "train", "run.yaml", *GPT2, "parallel.pipeline=2",
                               "comm.encrypt=on", "comm.timeout_s=10", "train.device=cuda"], cwd=self.folder, env=self.environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False)
        self.check(done.stdout, "gradient sums: on the host: comm.encrypt is on, and NCCL does not encrypt\n", GPT2_HASH)

    def test_nccls_own_order_is_marked(self):
        text = self.train("-n", "3", *MLP, "comm.order=any")
        self.assertIn("gradient sums: by NCCL 2.28.9, between cards, in its own order\n", text)
        self.assertIn("not reproducible (comm.order is any)", text)

    def test_a_run_allocates_what_its_plan_says(self):
        for sync in ("allreduce", "zero1", "zero2", "zero3"):
            self.train("-n", "3", "--out", sync, *MLP, "model.hidden=[256,256]", "parallel.bucket_kib=256", f"parallel.sync={sync}")
            for path in (self.folder / sync / "ranks").glob("rank-*.jsonl"):
                line = [line for line in map(json.loads, path.read_text().splitlines()) if "event" not in line][-1]
                self.assertAlmostEqual(line["gpu_own_memory_peak_bytes"] / line["gpu_own_memory_planned_bytes"], 1, delta=0.02)

    def test_traces_and_metrics_have_what_nccl_moves(self):
        for out, words, names in (["canonical", [], {"nccl send_recv", "nccl all_gather"}], ["any", ["comm.order=any"], {"nccl all_reduce"}]):
            self.train("-n", "2", "--out", out, *MLP, *words, "monitor.trace=trace.json:1-2")
            events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
            moved = [event for event in events if event.get("cat") == "communication" and event["name"].startswith("nccl ")]
            self.assertEqual({event["name"] for event in moved}, names)
            self.assertEqual({(event["pid"], event["args"]["sequence"]) for event in moved}, {(rank, step) for rank in (0, 1) for step in (1, 2)})
            self.assertEqual("add" in {event["name"] for event in events if event.get("cat") == "kernels"}, out == "canonical")
            said = json.loads(subprocess.run([TRIREME, "trace", "summarize", "trace.json", "--json"], cwd=self.folder, stdout=subprocess.PIPE,
                                             text=True, check=True).stdout)
            steps = [sum(event["args"]["bytes"] for event in moved if event["pid"] == 0 and event["args"]["sequence"] == step) for step in (1, 2)]
            self.assertGreater(steps[0], 4 * 24 * 12)  # more than one layer
            self.assertEqual(steps[0], steps[1])
            self.assertGreaterEqual(said["ranks"][0]["bytes"], sum(steps))
            lines = [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]
            self.assertGreaterEqual(next(line["sent_bytes"] for line in lines if line.get("step") == 2), steps[0])


class Fails(OnCards):
    """NCCL fails, and no rank is lost."""

    def test_a_rank_that_fails_as_it_comes_says_why(self):
        text = self.train("-n", "2", *MLP, "comm.timeout_s=4", code=1, nccl="fails1")
        self.assertEqual(set(re.findall("(?m)^error.*", text)), {"error: rank 1: NCCL 2.28.9: init: unhandled system error"}, text)

    def test_an_abort_that_hangs_ends_the_process(self):
        text = self.train("-n", "2", *MLP, "comm.timeout_s=4", code=1, nccl="fails1,abort_hangs")
        self.assertIn("its abort has not ended within 5.0 s: end this process; nothing on the card can be used after it: this process ends", text)

    def test_a_finalize_that_hangs_is_told_and_the_run_ends_well(self):
        text = self.train("-n", "2", *MLP, "comm.timeout_s=20", nccl="finalize_hangs")
        self.check(text, BY_NCCL)
        self.assertIn("NCCL 2.28.9: its finalize has not ended within 5.0 s; all sums are complete", text)

    def test_a_run_ends_where_an_exchange_fails(self):
        text = self.train("-n", "3", *LONG, code=1, nccl="gone1")
        self.assertRegex(text, "(?m)^error: step 0: NCCL 2.28.9: exchange: remote process exited or there was a network error$")

    def test_in_an_elastic_run_the_host_sums_from_then_on(self):
        text = self.train("-n", "3", "--elastic", "3:3", *LONG, nccl="gone1")
        self.assertRegex(text, "gradient sums: on the host: rank [02]: it has failed: NCCL 2.28.9: exchange: remote process exited")
        self.assertIn(f"weights: xxh3 {LONG_HASH}\n", text)

    def test_so_it_does_where_ranks_cannot_join(self):
        for fault, why in (("fails1", "rank 1: NCCL 2.28.9: init: unhandled system error"), ("absent1", r"rank \d: NCCL 2.28.9: init: rank \d has waited")):
            text = self.train("-n", "2", "--elastic", "2:2", *LONG, "comm.timeout_s=4", nccl=fault)
            self.assertRegex(text, f"gradient sums: on the host: rank \\d: it has failed: {why}")
            self.assertIn(f"weights: xxh3 {LONG_HASH}\n", text)


class Lost(OnCards):
    """A rank is lost while others wait in NCCL."""

    def faulty(self, fault, *words):
        trigger, output, out = self.folder / "trigger", self.folder / "output", "-".join([fault, *words])
        trigger.touch()
        with output.open("w") as file:
            launcher = subprocess.Popen([TRIREME, "train", "run.yaml", "--out", out, *LONG, *words, "-n", "3", "--elastic", "2:3", "--restarts", "10",
                                         "train.device=cuda"], cwd=self.folder, env=self.environment(nccl=f"{fault}={trigger}@{EXCHANGES}"), stdout=file,
                                        stderr=subprocess.STDOUT)
        end = time.monotonic() + LIMIT_S
        while launcher.poll() is None and time.monotonic() < end:
            if "generation 2: resumed" in output.read_text():
                for pid in ranks_of(launcher.pid).values():
                    os.kill(pid, signal.SIGCONT)  # who was stopped joins again
                break
            time.sleep(0.005)
        launcher.wait(timeout=LIMIT_S)
        text = output.read_text()
        self.assertEqual(launcher.returncode, 0, text)
        self.assertFalse(trigger.exists(), "the run was over before the fault")
        self.assertIn("generation 2: resumed", text)
        self.assertIn(f"weights: xxh3 {LONG_HASH}", text)
        return text

    def test_a_rank_that_is_killed_is_named(self):
        (self.folder / "trigger").touch()
        text = self.train("-n", "3", *LONG, code=137, nccl=f"killed={self.folder / 'trigger'}")
        self.assertRegex(text, r"error: step 0: .*rank \d is gone \((connection closed|its process has died)\)")

    def test_the_others_go_on_without_a_rank_that_is_killed(self):
        self.faulty("killed")

    def test_so_they_do_with_zero1_whether_sums_or_weights_travel(self):
        self.faulty("killed", "parallel.sync=zero1")
        self.faulty("killed_gather", "parallel.sync=zero1")

    def test_so_they_do_with_zero3_whether_sums_or_weights_travel(self):
        self.faulty("killed", "parallel.sync=zero3")
        self.faulty("killed_gather", "parallel.sync=zero3")

    def test_the_others_go_on_without_a_rank_that_stops(self):
        self.faulty("stopped")
        self.faulty("stopped", "parallel.sync=zero3")


if __name__ == "__main__":
    unittest.main()
