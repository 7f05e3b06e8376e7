#!/usr/bin/env python3
"""The promise through the program: the `weights:` line is the same for every number of processes, transport and thread count,
after stop and resume; and what is broken on purpose gives one clear line, the right exit code, and leaves nothing behind.

usage: train.py TRIREME
"""
import json
import os
import pathlib
import random
import re
import resource
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from launched import LIMIT_S, TRIREME, has_address_sanitizer, long_test
from ports import free_port
from steps import has_steps

CONFIG = """
model:
  layers:
    - reshape: [4, 4, 2]
    - conv2d: {out: 4, kernel: 3, pad: 1}
    - batch_norm
    - relu
    - flatten
    - dropout: 0.2
    - linear: classes
data: {name: synthetic, synthetic_count: 1000, synthetic_width: 32}
train: {batch: 60, epochs: 2, shards: 8}
optim: {lr: 0.05, clip_norm: 1}
"""

GPT = """
model: {name: gpt2, n_layer: 4, n_head: 4, n_embd: 16, resid_pdrop: 0.1, embd_pdrop: 0.1, attn_pdrop: 0.1}
data: {name: synthetic, synthetic_tokens: true, classes: 30, synthetic_count: 75, synthetic_width: 12}
train: {batch: 20, shards: 8, epochs: 5, seed: 7, threads: 1}
optim: {name: adamw, lr: 0.01, weight_decay: 0.1, decay: weights, clip_norm: 1}
parallel: {bucket_kib: 4, tensor_parts: 4}
"""
MESHES = [
    (2, "tensor=2"),
    (4, "tensor=4"),
    (2, "pipeline=2"),
    (4, "pipeline=2 schedule=gpipe"),
    (4, "pipeline=2 tensor=2 schedule=interleaved chunks=2"),
    (3, "sync=zero2"),
    (4, "sync=zero3"),
    (4, "tensor=2 sync=zero3"),
    (4, "sync=zero3 zero_ranks=2"),
    (6, "sync=zero1 zero_ranks=2"),
    (4, "pipeline=2 sync=zero3"),
    (8, "data=2 tensor=2 pipeline=2 sync=zero1"),
]


def npy_write(path, kind, shape, values):
    """An array as numpy.save writes it; kind: "<f4", "<i4", "|u1"."""
    head = repr({"descr": kind, "fortran_order": False, "shape": tuple(shape)}).encode().ljust(117) + b"\n"
    body = struct.pack(f"<{len(values)}{ {'<f4': 'f', '<i4': 'i', '|u1': 'B'}[kind] }", *values)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + body)


def is_held(name):
    """Does a living process have it open or mapped? Then it is somebody else's: ours have ended when this is asked."""
    path = f"/dev/shm/{name}"
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            if path in pathlib.Path(f"/proc/{pid}/maps").read_text() or any(link.startswith(path) for link in links):
                return True
        except OSError:
            pass
    return False


OWNER = f"TRIREME_TEST_OWNER={os.getpid()}".encode()
os.environb.update([OWNER.split(b"=")])  # all that we start has it in its environment


# Names that libraries of other tests give, which run beside this one: LLVM's OpenMP, UCX, Open MPI, MPICH, PyTorch, Python.
OTHERS = ("__KMP_", "ucx_", "vader_", "sm_segment", "mpich", "torch_", "sem.", "psm_")


def leftovers():
    """Shared memory by name, and processes of this test that still run."""
    names = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    names = {name for name in names if not name.startswith(OTHERS)}
    running = set()
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            try:
                if os.readlink(f"/proc/{pid}/exe") == TRIREME and OWNER in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    running.add(int(pid))
            except OSError:
                pass
    return names, running


class Train(unittest.TestCase):
    def setUp(self):
        self.before = leftovers()[0]
        self.folder = tempfile.TemporaryDirectory()
        self.config = pathlib.Path(self.folder.name, "run.yaml")
        self.config.write_text(CONFIG)
        self.runs = 0

    def tearDown(self):
        deadline = time.time() + LIMIT_S
        while leftovers()[1] and time.time() < deadline:
            time.sleep(0.05)
        names, running = leftovers()
        self.assertEqual(running, set(), "processes are left behind")
        left = {name for name in names - self.before if os.path.exists(f"/dev/shm/{name}") and not is_held(name)}
        self.assertEqual(left, set(), "shared memory is left behind")
        self.folder.cleanup()

    def start(self, *args, env=None):
        self.runs += 1
        self.out = f"{self.folder.name}/run{self.runs}"
        command = [TRIREME, "train", *([] if "--resume" in args else [str(self.config)]), *args]
        if "--out" not in args and "--resume" not in args:
            command += ["--out", self.out]
        return subprocess.Popen(command, cwd=self.folder.name, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})})

    def train(self, *args, code=0, env=None):
        process = self.start(*args, env=env)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, code, f"{args}\n{out}{err}")
        return out, err

    def weights(self, *args, env=None):
        out, _ = self.train(*args, env=env)
        return re.search(r"^weights: xxh3 ([0-9a-f]{16})$", out, re.M).group(1)

    def error_lines(self, err):
        return [line for line in err.splitlines() if "error:" in line]

    @long_test
    def test_the_weights_are_the_same_for_every_layout(self):
        one = self.weights()
        for ranks in (1, 2, 3, 4, 5, 8):
            self.assertEqual(self.weights("-n", str(ranks)), one, f"{ranks} ranks over shared memory")
        for ranks in (2, 3):
            self.assertEqual(self.weights("-n", str(ranks), "comm.transport=tcp"), one, f"{ranks} ranks over tcp")
            self.assertEqual(self.weights("-n", str(ranks), env={"OMP_NUM_THREADS": "2"}), one, "two threads each")
        self.assertEqual(self.weights("train.threads=2"), one)

    @long_test
    def test_bf16_has_the_same_weights_for_every_layout_and_after_a_resume(self):
        bf16 = "train.precision=bf16"
        self.config.write_text(CONFIG.replace("- linear: classes", "- linear: {out: 16, relu: true}\n    - linear: classes"))
        one = self.weights(bf16)
        self.assertNotEqual(one, self.weights(), "bf16 changed nothing")
        for ranks in (2, 3):
            self.assertEqual(self.weights("-n", str(ranks), bf16), one, f"{ranks} ranks")
        self.assertEqual(self.weights("-n", "2", bf16, env={"OMP_NUM_THREADS": "2"}), one, "two threads each")
        run = f"{self.folder.name}/half"
        self.train("-n", "2", "--out", run, bf16, "train.steps=11")
        self.assertEqual(self.weights("-n", "3", "--resume", run, "train.steps=0"), one)

    @long_test
    def test_f16_has_the_same_weights_for_every_layout_and_after_a_resume(self):
        self.config.write_text(GPT)
        f16 = ("train.precision=f16", "train.loss_scale_init=1048576", "train.loss_scale_window=3")
        one = self.weights(*f16)
        self.assertNotEqual(one, self.weights(), "f16 changed nothing")
        for ranks, layout in ((2, ""), (3, ""), (4, ""), (2, "tensor=2"), (4, "pipeline=2"), (4, "tensor=2 sync=zero3")):
            for more in ([], ["comm.transport=tcp"]):
                args = [f"parallel.{option}" for option in layout.split()]
                self.assertEqual(self.weights("-n", str(ranks), *f16, *args, *more), one, f"{ranks} ranks, {layout} {more}")
        run = f"{self.folder.name}/short"
        self.train("-n", "2", "--out", run, *f16, "train.steps=9")
        self.assertEqual(self.weights("-n", "3", "--resume", run, "train.steps=0"), one)

    @long_test
    def test_batch_norm_over_the_whole_batch_has_the_same_weights_for_every_layout(self):
        sync = "model.sync_batch_norm=true"
        one = self.weights(sync)
        self.assertNotEqual(one, self.weights(), "the statistics are still those of a shard")
        for ranks in (2, 3, 4):
            for more in ([], ["comm.transport=tcp"], ["parallel.sync=zero2"]):
                self.assertEqual(self.weights("-n", str(ranks), sync, *more), one, f"{ranks} ranks {more}")
        run = f"{self.folder.name}/sync"
        self.train("-n", "2", "--out", run, sync, "train.steps=11")
        self.assertEqual(self.weights("-n", "3", "--resume", run, "train.steps=0"), one)

    @long_test
    def test_sharded_state_has_the_same_weights_for_every_layout_and_in_the_files_of_any(self):
        adamw = ("optim.name=adamw", "optim.lr=0.01", "optim.clip_norm=1")
        one = self.weights(*adamw)
        for sync in ("zero1", "zero2", "zero3"):
            zero = f"parallel.sync={sync}"
            for ranks in (1, 2, 3, 4, 5, 8):
                self.assertEqual(self.weights("-n", str(ranks), zero, *adamw), one, f"{sync}, {ranks} ranks over shared memory")
            for ranks in (2, 3):
                self.assertEqual(self.weights("-n", str(ranks), zero, *adamw, "comm.transport=tcp"), one, f"{sync}, {ranks} ranks over tcp")
            self.assertEqual(self.weights("-n", "2", zero, *adamw, "train.shards_at_once=2"), one, f"{sync}, in pieces")
        for first, second in (("zero1", "allreduce"), ("allreduce", "zero3"), ("zero3", "zero2")):
            run = f"{self.folder.name}/{first}"
            self.train("-n", "2", "--out", run, *adamw, f"parallel.sync={first}", "train.steps=11")
            self.assertEqual(self.weights("-n", "3", "--resume", run, f"parallel.sync={second}", "train.steps=0"), one)

    @long_test
    def test_every_mesh_has_the_weights_of_one_process(self):
        self.config.write_text(GPT)
        one = self.weights()
        for ranks, layout in MESHES:
            args = [f"parallel.{option}" for option in layout.split()]
            for more in ([], ["comm.transport=tcp"]) if ranks < 8 else ([],):
                self.assertEqual(self.weights("-n", str(ranks), *args, *more), one, f"{ranks} ranks, {layout} {more}")

    @unittest.skipIf(has_address_sanitizer(), "no limit of addresses with AddressSanitizer")
    def test_stages_of_tensor_ranks_with_unequal_parts_of_a_vocabulary_are_cut_alike(self):
        llama = "{name: llama, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 8, intermediate_size: 32}"
        for model, classes, words in ((llama, 19, []), ("{name: gpt2, n_layer: 2, n_head: 2, n_embd: 16, checkpoint: true}", 5,
                                                        ["parallel.schedule=interleaved", "parallel.chunks=2"])):
            self.config.write_text(f"model: {model}\ndata: {{name: synthetic, synthetic_tokens: true, synthetic_count: 22, "
                                   f"classes: {classes}, synthetic_width: 16}}\ntrain: {{batch: 8, shards: 4, epochs: 1, threads: 1}}\n"
                                   "parallel: {tensor_parts: 2}\n")
            self.assertEqual(self.weights("-n", "6", "parallel.tensor=2", "parallel.pipeline=3", *words), self.weights(), model)

    def test_what_was_not_reproducible_stays_so(self):
        run = f"{self.folder.name}/any"
        why = "bits: not reproducible (comm.order is any)"
        out, err = self.train("-n", "3", "comm.order=any", "--out", run, "train.steps=10")
        self.assertIn(why, out + err)
        for ranks in ("2", "1"):
            out, err = self.train("-n", ranks, "--resume", run, "comm.order=canonical", f"train.steps={14 - int(ranks)}")
            self.assertIn(why, out + err)

    @unittest.skipIf(has_address_sanitizer(), "no limit of addresses with AddressSanitizer")
    def test_a_model_that_is_too_big_for_one_worker_trains_on_four(self):
        # 32.6 M parameters: weights, gradients and Adam's state are 522 MB, a quarter of them 130.
        self.config.write_text(f"model: {{name: mlp, hidden: {[1024] * 32}}}\n"
                               "data: {name: synthetic, synthetic_count: 64, synthetic_width: 32}\n"
                               "train: {batch: 16, steps: 2, eval_batches: 1, threads: 1}\noptim: {name: adamw}\n")
        one = self.weights("-n", "1")

        def limited(*args):
            return subprocess.run([TRIREME, "train", str(self.config), *args], cwd=self.folder.name, text=True, timeout=LIMIT_S,
                                  capture_output=True,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (485 << 20, 485 << 20)))

        alone = limited("-n", "1")
        self.assertEqual(alone.returncode, 1, alone.stderr)
        self.assertIn("memory: want", alone.stderr)
        self.assertIn("parallel.sync=zero3", alone.stderr)  # the way out
        four = limited("-n", "4", "parallel.sync=zero3")
        self.assertEqual(four.returncode, 0, four.stderr)
        self.assertIn(one, four.stdout)

    def test_sharded_state_says_what_a_worker_needs(self):
        def needs(what, ranks, *args):
            out, _ = self.train("--dry-run", "-n", str(ranks), "optim.name=adamw", *args)
            number, unit = re.search(what + r" ([0-9.]+) (\w+)", out).groups()
            return float(number) * {"B": 1, "KiB": 1024, "MiB": 1024**2}[unit]

        # 16 units of 1 MiB, of which some pass through.
        self.config.write_text("model: {name: mlp, hidden: [" + ", ".join(["512"] * 17) + "]}\n"
                               "data: {name: synthetic, synthetic_width: 512}\n")
        whole = {what: needs(what, 4) for what in ("weights", "gradients", "optimizer")}
        for ranks in (2, 4, 8):
            for what, sync in (("optimizer", "zero1"), ("gradients", "zero2"), ("weights", "zero3")):
                passing = {"optimizer": 0, "gradients": 2, "weights": 3}[what] * 1.01 * 2**20
                needed = needs(what, ranks, f"parallel.sync={sync}") - passing
                self.assertAlmostEqual(needed * ranks / whole[what], 1, delta=0.05)
        self.assertEqual(needs("weights", 4, "parallel.sync=zero2"), whole["weights"])
        self.assertEqual(needs("gradients", 4, "parallel.sync=zero1"), whole["gradients"])

    def test_sharded_state_that_cannot_save_is_one_line_and_nobody_waits(self):
        # Weights of 2.0 MiB fit below the limit of 2.5, the optimizer's 4.0, which come from all ranks, do not.
        self.config.write_text("model: {name: mlp, hidden: [700, 700]}\ndata: {name: synthetic, synthetic_width: 32}\n"
                               "optim: {name: adamw}\nparallel: {sync: zero1}\ntrain: {steps: 5, eval_batches: 1}\n")
        run = f"{self.folder.name}/full"
        self.train("-n", "2", "--out", run)
        before = sorted(os.listdir(f"{run}/checkpoints"))
        shell = f"ulimit -f 5000; trap '' XFSZ; exec {TRIREME} train --resume {run} -n 3 train.steps=7"
        process = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=LIMIT_S, cwd=self.folder.name)
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertIn("not saved", process.stderr)
        self.assertEqual(sorted(n for n in os.listdir(f"{run}/checkpoints") if n.startswith("step-")), before)

    def accuracy(self, *args):
        out, _ = self.train(*args)
        return float(re.search(r"^test accuracy ([0-9.]+)$", out, re.M).group(1))

    def test_16_bits_learn_what_f32_learns(self):
        cnn = "{layers: [{reshape: [8, 8, 1]}, {conv2d: {out: 8, kernel: 3, relu: true}}, {max_pool: 2}, flatten, {linear: {out: 32, relu: true}}, {linear: classes}]}"
        for model in ("{name: mlp, hidden: [64, 32]}", cnn):
            self.config.write_text(f"model: {model}\ndata: {{name: synthetic, synthetic_count: 4000, synthetic_width: 64}}\n"
                                   "train: {batch: 64, epochs: 3}\noptim: {lr: 0.05}\n")
            wide = self.accuracy()
            self.assertGreater(wide, 0.5, model)
            for precision in ("bf16", "f16"):
                self.assertLess(abs(wide - self.accuracy(f"train.precision={precision}")), 0.05, f"{model} {precision}")  # of 500 samples

    def test_stop_and_resume_in_mid_epoch_end_at_the_same_weights(self):
        one = self.weights()
        run = f"{self.folder.name}/resumed"
        self.train("-n", "2", "--out", run, "train.steps=11")
        self.assertEqual(self.weights("-n", "3", "--resume", run, "train.steps=0"), one)
        lines = [json.loads(line) for line in pathlib.Path(run, "metrics.jsonl").read_text().splitlines()]
        steps = [line["step"] for line in lines if "loss" in line]
        self.assertEqual(steps, list(range(34)))

    def test_slow_links_are_named_at_the_start(self):
        for args, line in (
                (("parallel.compress=int8", "parallel.compress_between=ranks"),
                 "bits: not reproducible (parallel.compress int8 on 2 ranks: other layouts give other bits)"),
                (("parallel.sync=diloco",), "bits: not reproducible across layouts (parallel.sync diloco on 2 ranks)"),
                (("parallel.compress=int8",), "parallel.compress int8: nothing is compressed, all ranks are on one host "
                                              "(parallel.compress_between: ranks compresses there too)")):
            out, _ = self.train("-n", "2", "train.steps=2", *args)
            self.assertIn(line, out.splitlines())

    def test_what_is_kept_back_of_gradients_is_lost_in_a_resume_and_reported_where_there_is_any(self):
        for name in ("bf16", "int8"):
            run = f"{self.folder.name}/{name}"
            words = (f"parallel.compress={name}", "parallel.compress_between=ranks")
            whole = self.weights("-n", "2", *words, "train.steps=10")
            self.train("-n", "2", "--out", run, *words, "train.steps=5")
            out, _ = self.train("-n", "2", "--resume", run, *words, "train.steps=10")
            says = f"parallel.compress {name}: what earlier steps left to be sent is not in the checkpoint"
            self.assertEqual((says in out, whole in out), (name != "bf16", name == "bf16"), out)

    def test_compressed_gradients_are_fewer_bytes_by_the_runs_own_count(self):
        def sent(*args):
            run = tempfile.mkdtemp(dir=self.folder.name)
            self.train("-n", "2", "--out", run, "comm.transport=tcp", "train.steps=5", "parallel.compress_between=ranks", *args)
            lines = [json.loads(line) for line in pathlib.Path(run, "metrics.jsonl").read_text().splitlines()]
            return [line["sent_bytes"] for line in lines if "sent_bytes" in line][-1]

        self.config.write_text("model: {name: mlp, hidden: [256, 256]}\ndata: {name: synthetic, synthetic_width: 256}\n")
        plain = sent()
        for name, times in (("bf16", 1.9), ("int8", 3.5), ("topk", 30), ("powersgd", 10), ("powersgd parallel.compress_residual=none", 20)):
            self.assertGreater(plain / sent(*f"parallel.compress={name}".split()), times, name)

    def test_a_signal_saves_and_resume_continues(self):
        self.expect_stop_and_resume()

    def test_ranks_that_are_apart_stop_together_and_continue(self):
        self.expect_stop_and_resume("parallel.sync=diloco", "parallel.local_steps=7", "parallel.outer_delay=3", "parallel.outer_fragments=2")

    def expect_stop_and_resume(self, *args):
        one = self.weights("-n", "2", "train.epochs=40", *args)
        run = f"{self.folder.name}/stopped"
        process = self.start("-n", "2", "--out", run, "train.epochs=40", *args)
        while not has_steps(run):
            self.assertIsNone(process.poll(), "ended before it could be stopped")
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT_S)
        if process.returncode == 0:
            self.skipTest("the run was over before the signal came")
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, err)
        self.assertEqual(self.weights("-n", "2", "--resume", run), one)

    def test_a_step_without_a_sample_has_no_loss_and_people_see_the_last_one(self):
        """The last batch of an epoch has one sample, of a shard of another rank than the first."""
        run = pathlib.Path(self.folder.name) / "short"
        out, err = self.train("-n", "4", "--out", str(run), "parallel.sync=local", "parallel.local_steps=2", "train.batch=8",
                              "train.epochs=2", "data.synthetic_count=33", "optim.clip_norm=0")
        self.assertRegex(out + err, r"step 5  loss \d")
        self.assertNotIn("nan", out + err)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in lines if line.get("loss", 0) is None], [4, 9])

    def test_a_killed_worker_is_named_and_the_others_stop(self):
        run = f"{self.folder.name}/killed"
        process = self.start("-n", "3", "--out", run, "train.epochs=100000")
        victim = None
        deadline = time.time() + LIMIT_S
        while victim is None and time.time() < deadline:
            for pid in leftovers()[1]:
                try:
                    if b"TRIREME_RANK=1\0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                        victim = pid
                except OSError:
                    pass
        while not has_steps(run):
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 128 + signal.SIGKILL, err)
        self.assertIn("rank 1", err)

    def test_a_killed_launcher_takes_its_workers_along(self):
        process = self.start("-n", "2", "train.epochs=100000")
        deadline = time.time() + LIMIT_S
        while len(leftovers()[1]) < 3 and time.time() < deadline:
            time.sleep(0.02)
        process.kill()
        process.communicate(timeout=LIMIT_S)

    def test_one_run_at_a_time_writes_in_a_folder_and_the_next_one_right_after_it_was_killed(self):
        run = f"{self.folder.name}/mine"
        first = self.start("-n", "2", "--out", run, "train.epochs=100000")
        deadline = time.time() + LIMIT_S
        while not os.path.exists(f"{run}/metrics.jsonl") and time.time() < deadline:
            time.sleep(0.02)
        _, err = self.train("--out", run, code=2)
        self.assertIn(f"error: {run}: a run writes here, begun by process {first.pid} on ", err)
        self.assertIsNone(first.poll())
        first.kill()
        self.train("-n", "2", "--out", run, "--overwrite")
        first.communicate(timeout=LIMIT_S)

    def test_a_full_disk_is_one_line_and_the_last_checkpoint_survives(self):
        run = f"{self.folder.name}/full"
        self.train("--out", run, "train.steps=5")
        before = sorted(os.listdir(f"{run}/checkpoints"))
        shell = f"ulimit -f 2; trap '' XFSZ; exec {TRIREME} train --resume {run} train.steps=0"
        process = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=LIMIT_S, cwd=self.folder.name)
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertEqual(len(self.error_lines(process.stderr)), 1, process.stderr)
        self.assertEqual(sorted(n for n in os.listdir(f"{run}/checkpoints") if n.startswith("step-")), before)

    def test_a_launcher_whose_output_and_logs_find_no_room_continues(self):
        path = pathlib.Path(self.folder.name, "out")
        with open(path, "w") as file:
            process = subprocess.Popen([TRIREME, "train", str(self.config), "-n", "2", "train.epochs=100000", "train.eval_every_steps=10"],
                                       cwd=self.folder.name, stdout=file, stderr=subprocess.PIPE, text=True,
                                       preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
        err = ""

        def read_until(*words):
            nonlocal err
            while not all(word in err for word in words):
                line = process.stderr.readline()
                self.assertNotEqual(line, "", err)
                err += line

        while path.stat().st_size == 0:
            time.sleep(0.01)
        limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, limits[1]))
        read_until("standard output cannot be written: File too large; the run continues", "log/rank-0.log: cannot write")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
        read_until("standard output is written again", "logs of ranks are written again")
        process.send_signal(signal.SIGTERM)
        err += process.communicate(timeout=LIMIT_S)[1]
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, err)
        self.assertEqual(err.count("cannot be written"), 1, err)
        for line in path.read_text().splitlines():
            self.assertRegex(line, r"^epoch .* samples/s$")

    def test_killed_while_it_saves_it_continues_from_a_whole_checkpoint(self):
        """kill -9 of the launcher, again and again, in a run whose ranks write their parts beside the training after each step."""
        one = self.weights()
        run = f"{self.folder.name}/killed"
        random.seed(10)
        words = ("-n", "2", "parallel.sync=zero3", "checkpoint.every_steps=1", "checkpoint.keep=2")
        for kill in range(5):
            process = self.start(*words, *(("--out", run) if kill == 0 else ("--resume", run)))
            before = set(os.listdir(f"{run}/checkpoints")) if kill > 0 else set()
            deadline = time.time() + LIMIT_S
            while process.poll() is None and time.time() < deadline:
                if os.path.isdir(f"{run}/checkpoints") and set(filter(re.compile("step-").match, os.listdir(f"{run}/checkpoints"))) - before:
                    break
                time.sleep(0.002)
            time.sleep(random.random() * 0.05)
            process.kill()
            process.communicate()
            done = subprocess.run([TRIREME, "ckpt", "verify", run], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)
            while leftovers()[1]:
                time.sleep(0.02)
        self.assertEqual(self.weights(*words, "--resume", run), one)
        self.assertEqual([name for name in os.listdir(f"{run}/checkpoints") if not name.startswith("step-")], [])

    def test_a_checkpoint_that_a_run_removes_is_not_called_damaged(self):
        process = self.start("train.epochs=100000", "checkpoint.every_steps=1", "checkpoint.keep=20")
        while not list(pathlib.Path(self.out).glob("checkpoints/step-*")):
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        told, deadline = [], time.time() + 2
        while time.time() < deadline:
            told.append(subprocess.run([TRIREME, "ckpt", "verify", self.out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        process.kill()
        process.communicate()
        for done in told:
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_damaged_checkpoint_is_passed_over_or_named(self):
        run = f"{self.folder.name}/damaged"
        one = self.weights()
        self.train("--out", run, "train.steps=20", "checkpoint.every_steps=10")
        newest = sorted(pathlib.Path(run, "checkpoints").glob("step-*"))[-1]
        (newest / "model.safetensors").write_bytes(b"x" * 100)
        out, err = self.train("--resume", run, "train.steps=0")
        self.assertIn(newest.name, err)
        self.assertIn(one, out)
        for folder in pathlib.Path(run, "checkpoints").glob("step-*"):
            (folder / "model.safetensors").write_bytes(b"")
        _, err = self.train("--resume", run, code=1)
        self.assertEqual(len(self.error_lines(err)), 1, err)

    def test_a_learning_rate_that_explodes_is_one_line(self):
        self.config.write_text("model: {name: mlp, hidden: [16, 16]}\ndata: {name: synthetic}\noptim: {lr: 1e6}\n")
        _, err = self.train("-n", "2", "train.epochs=50", code=1)
        self.assertRegex(err, r"error: step \d+: the loss of step \d+ is .*optim.lr")

    def log(self):
        folder = pathlib.Path(self.out, "log")
        return {path.name: path.read_text().splitlines() for path in folder.iterdir()} if folder.exists() else {}

    def test_a_run_of_one_process_leaves_the_log_that_more_leave(self):
        for args in ([], ["-n", "1"], ["-n", "2"]):
            out, err = self.train(*args)
            self.assertEqual(sorted(self.log()["rank-0.log"]), sorted((out + err).splitlines()), args)
            self.assertIn("weights: xxh3", self.log()["rank-0.log"][-1])
        self.train(env={"TRIREME_RANK": "0", "TRIREME_WORLD_SIZE": "1", "TRIREME_LOCAL_RANK": "0", "TRIREME_LOCAL_WORLD_SIZE": "1"})
        self.assertEqual(self.log(), {}, "who started the process keeps its output")
        _, err = self.train("data.path=/nowhere", "data.format=idx", code=1)
        self.assertEqual(self.log()["rank-0.log"], err.splitlines())
        self.assertEqual(len(self.error_lines(err)), 1, err)

    def test_a_terminal_gets_a_line_that_rewrites_itself_and_the_log_whole_lines(self):
        master, slave = os.openpty()
        self.out = f"{self.folder.name}/watched"
        process = subprocess.Popen([TRIREME, "train", str(self.config), "--out", self.out, "train.epochs=100000"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, text=True,
                                   env={**os.environ, "OMP_NUM_THREADS": "1"})
        os.close(slave)
        shown, deadline = b"", time.time() + LIMIT_S
        while b" left" not in shown and time.time() < deadline:
            shown += os.read(master, 4096)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
        os.close(master)
        self.assertRegex(shown.decode(), r"\r\x1b\[K\x1b\[\?7lepoch \d+/100000  step \d+/1700000 ")
        self.assertNotIn("\033", "".join(self.log()["rank-0.log"]))

    def test_the_rank_that_failed_first_is_named_by_the_others(self):
        """Nobody launched them together: a launcher stops the others, and they then have a second to say it."""
        place = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        words = [[], ["data.format=idx", f"data.path={self.folder.name}/nowhere"], []]
        ranks = [self.start("--out", "three", *words[rank], env={**place, "RANK": str(rank)}) for rank in range(3)]
        for rank, process in enumerate(ranks):
            _, err = process.communicate(timeout=LIMIT_S)
            self.assertEqual(process.returncode, 1, err)
            self.assertEqual("hint: rank 1 failed first: look at its output and its host" in err.splitlines(), rank != 1, err)

    def test_damaged_data_files_are_one_line(self):
        data = pathlib.Path(self.folder.name, "idx")
        data.mkdir()
        for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
            (data / name).write_bytes(b"\0\0\x08\x03\0\0\0\x10")
        self.config.write_text(f"model: {{name: mlp}}\ndata: {{path: {data}, format: idx}}\n")
        _, err = self.train(code=1)
        self.assertEqual(len(self.error_lines(err)), 1, err)
        self.assertIn("train-images-idx3-ubyte", err)

    def test_data_that_the_model_was_not_made_for_are_one_line(self):
        ids, mlp = "[embedding: {rows: 4, width: 2}, flatten, linear: classes]", "[linear: classes]"
        three = {"x_train": ("<f4", 2), "y_train": ("<f4", 3), "x_test": ("<f4", 2), "y_test": ("<f4", 3)}
        classes = {"x_train": ("<f4", 2), "y_train": ("<i4", 0), "x_test": ("<f4", 2), "y_test": ("<i4", 0)}
        for layers, files, says in (
            (mlp, {**classes, "x_train": ("<i4", 2)}, "the model needs real numbers or bytes, the samples are i32"),
            (ids, classes, "the model begins with an embedding and needs i32 or i64, the samples are f32"),
            ("[linear: 2]", three, r"the model needs targets of shape [2] (f32) for a sample, the data has [3] (f32)"),
            ("[linear: 3]", {**three, "y_test": ("<f4", 2)}, "the model needs targets of shape [3], the data to evaluate has [2]"),
            (mlp, {**classes, "x_test": ("|u1", 2)}, "the model was made for samples of f32, the data to evaluate has u8"),
            (ids.replace("4", "3"), {**classes, "x_train": ("<i4", 2), "x_test": ("<i4", 2)}, "holds 3, the embedding has rows 0 to 2"),
        ):
            folder = pathlib.Path(self.folder.name) / "odd"
            folder.mkdir(exist_ok=True)
            for name, (kind, width) in files.items():
                npy_write(folder / f"{name}.npy", kind, (40, width) if width else (40,), [i % 4 for i in range(40 * max(1, width))])
            (folder / "odd.yaml").write_text(f"model: {{layers: {layers}}}\ndata: {{path: {folder}}}\n"
                                             "train: {batch: 8, shards: 4, epochs: 1}\noptim: {lr: 0.1}\n")
            done = subprocess.run([TRIREME, "train", "odd.yaml", "--out", "out"], cwd=folder, text=True, capture_output=True)
            self.assertIn(done.returncode, (1, 2), done.stdout + done.stderr)
            self.assertEqual(len(self.error_lines(done.stderr)), 1, done.stderr)
            self.assertIn(says, done.stderr)

    def test_a_text_of_other_characters_is_not_taken_for_that_of_the_weights(self):
        folder = pathlib.Path(self.folder.name)
        (folder / "one.txt").write_text("the same tokens " * 200)
        (folder / "other.txt").write_text("THE SAME TOKENS " * 200)
        self.config.write_text(f"model: {{name: gpt2, n_layer: 1, n_head: 2, n_embd: 16}}\ndata: {{path: {folder}/one.txt, context: 16}}\n"
                               "train: {batch: 8, steps: 10}\noptim: {name: adamw, lr: 0.01}\n")
        self.train("--out", str(folder / "run"))
        kept = (folder / "run/tokenizer.json").read_bytes()
        says = "the data's tokens are others than those that the weights of"
        _, err = self.train("--resume", str(folder / "run"), f"data.path={folder}/other.txt", "train.steps=12", code=2)
        self.assertIn(says, err)
        self.assertEqual((folder / "run/tokenizer.json").read_bytes(), kept)
        evaluate = [TRIREME, "eval", str(folder / "run"), f"data.path={folder}/other.txt"]
        done = subprocess.run(evaluate, text=True, capture_output=True)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn(says, done.stderr)
        (folder / "part.txt").write_text("the same " * 200)
        done = subprocess.run([*evaluate, f"data.path={folder}/part.txt", f"data.tokenizer={folder}/run/tokenizer.json"], text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.train("--resume", str(folder / "run"), "train.steps=12")

    def test_the_best_of_an_earlier_run_is_set_aside(self):
        run = pathlib.Path(self.folder.name) / "kept"
        best = lambda: json.loads((run / "best/best.json").read_text())
        self.train("--out", str(run), "checkpoint.keep_best=true")
        first = best()
        self.train("--out", str(run), "--overwrite", "optim.lr=0.00001", "train.epochs=1")
        self.assertFalse((run / "best").exists())
        self.train("--resume", str(run), "optim.lr=0.00001", "train.epochs=2", "checkpoint.keep_best=true")
        self.assertGreater(best()["test_loss"], first["test_loss"])
        self.assertEqual(json.loads((run.parent / "kept.1/best/best.json").read_text()), first)

    def test_an_earlier_run_is_not_overwritten(self):
        run = pathlib.Path(self.folder.name) / "run"
        self.train("--out", str(run))
        files = {name: (run / name).read_bytes() for name in ("metrics.jsonl", "config.yaml")}
        for words in ((), ("-n", "2"), ("-n", "2", "--elastic", "1:2"), ("-n", "1", "--servers", "1", "parallel.sync=ps")):
            _, err = self.train("--out", str(run), "train.epochs=1", *words, code=2)
            self.assertEqual(len(self.error_lines(err)), 1, err)
            self.assertIn(f"error: --out {run}: an earlier run is stored there (its newest checkpoint is of step 34)", err)
            self.assertRegex(err, "hint: --resume .*--overwrite")
        self.train("--out", str(run), "--continue", "--overwrite", code=2)
        self.train("--resume", str(run), "train.steps=20", "--out", f"{run}/", code=2)  # it is over already
        self.assertEqual({name: (run / name).read_bytes() for name in files}, files)
        for number, words in ((1, ()), (2, ("-n", "2")), (3, ("-n", "2", "--elastic", "1:2"))):
            self.train("--out", str(run), "--overwrite", "train.epochs=1", *words)
            self.assertEqual(sorted(path.name for path in run.glob("*.1")), [])
            self.assertTrue((run.parent / f"run.{number}/checkpoints").is_dir())
        self.assertEqual({name: (run.parent / "run.1" / name).read_bytes() for name in files}, files)
        self.train("--resume", f"{run}.1", "--out", str(run), code=2)
        self.train("--out", str(run), "--continue", "train.epochs=2")  # as a job that is started again

    def test_a_run_that_made_no_step_is_in_nobodys_way(self):
        run = pathlib.Path(self.folder.name) / "run"
        run.mkdir()
        (run / "config.yaml").write_text(CONFIG)
        (run / "metrics.jsonl").write_text('{"step":0,"event":"run","text":"trireme 0.1.0","trace_id":"1"}\n')
        self.train("--out", str(run), "train.epochs=1")
        self.assertEqual(sorted(path.name for path in run.parent.glob("run*")), ["run", "run.yaml"])

    def test_a_checkpoint_that_cannot_be_read_now_stops_a_run_and_stays(self):
        """A link to itself fails with ELOOP, for root too, as a disk or a mount does with EIO or ESTALE."""
        run = pathlib.Path(self.folder.name) / "run"
        whole = self.weights("-n", "2")
        for words in ((), ("-n", "2"), ("-n", "2", "--elastic", "1:2")):
            self.train("--out", str(run), "train.steps=20", "--overwrite")
            step = next((run / "checkpoints").glob("step-*"))
            for file in sorted(step.iterdir()):
                kept = file.rename(file.with_suffix(".kept"))
                file.symlink_to(file)
                for way in (("--continue", "--out", str(run)), ("--resume", str(run))):
                    _, err = self.train(*way, *words, code=1)
                    self.assertIn("cannot be read now", err)
                    self.assertIn(f"{step.name}/{file.name}", err)
                done = subprocess.run([TRIREME, "ckpt", "verify", str(run)], capture_output=True, text=True)
                self.assertEqual((done.returncode, "damaged" in done.stdout + done.stderr), (1, False), done.stderr)
                done = subprocess.run([TRIREME, "ckpt", "prune", str(run), "--keep", "1"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 1, done.stdout)
                kept.rename(file)
            self.assertEqual([path.name for path in run.glob("checkpoints*")], ["checkpoints"])
            self.assertEqual(self.weights("--continue", "--out", str(run), *words), whole)

    def saves(self, run):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if "checkpoint" in line and line["checkpoint_bytes"] > 0]

    def steps_saved(self, run):
        return sorted(int(path.name[5:]) for path in (run / "checkpoints").glob("step-*"))

    def test_a_run_that_is_killed_has_saved_its_epochs(self):
        run = pathlib.Path(self.folder.name) / "run"
        whole = self.weights("train.epochs=12")
        for words in ((), ("-n", "2"), ("-n", "2", "parallel.sync=zero2")):
            process = self.start("--out", str(run), "--overwrite", "train.epochs=1000000", *words)
            deadline = time.time() + LIMIT_S
            while not (run / "checkpoints").is_dir() or not self.steps_saved(run):
                self.assertIsNone(process.poll())
                self.assertLess(time.time(), deadline)
                time.sleep(0.01)
            process.kill()
            process.communicate(timeout=LIMIT_S)
            saved = self.steps_saved(run)
            if not words:  # ranks whose launcher ends save the step that they are at
                self.assertEqual([step % 17 for step in saved], [0] * len(saved), saved)
            _, err = self.train("--resume", str(run), f"train.steps={saved[-1] + 1}", *words)
            self.assertIn(saved[-1] + 1, self.steps_saved(run))
        self.assertEqual(self.weights("train.epochs=12", "checkpoint.every_epochs=0"), whole)

    def test_short_epochs_are_not_all_saved(self):
        """Training between two saves takes 20 times what the first of them took, so all of them a twentieth of the run."""
        run = pathlib.Path(self.folder.name) / "run"
        start = time.monotonic()
        self.train("--out", str(run), "train.epochs=150", "train.eval_every=1000")
        spent = time.monotonic() - start
        saves = self.saves(run)
        self.assertGreater(len(saves), 1)
        self.assertLessEqual(sum(20 * line["checkpoint_took"] for line in saves[:-2]), spent)
        self.assertEqual(len(self.steps_saved(run)), 2)

    def test_who_says_when_to_save_says_all_of_it(self):
        for word, want in (("checkpoint.every_epochs=0", [34]), ("checkpoint.every_steps=0", [34]), ("checkpoint.every_s=0", [34]),
                           ("checkpoint.every_steps=30", [30, 34]), ("checkpoint.every_epochs=2", [34])):
            run = pathlib.Path(self.folder.name) / word
            self.train("--out", str(run), word)
            self.assertEqual(self.steps_saved(run), want, word)

    def table(self, name, rows):
        path = pathlib.Path(self.folder.name, name)
        path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
        return path

    def test_other_training_data_are_not_resumed_without_a_word(self):
        rows = [[i % 7 / 7, i % 5 / 5, i % 3] for i in range(50)]
        path = self.table("a.csv", rows)
        self.config.write_text(f"model: {{name: mlp, hidden: [8]}}\ndata: {{path: {path}}}\ntrain: {{batch: 10, shards: 2, steps: 6, epochs: 9}}\n")
        run = pathlib.Path(self.folder.name) / "run"
        changed = [list(row) for row in rows]
        changed[44][1] = 0.77
        other_class = [list(row) for row in rows]
        other_class[20][2] = 1 - min(1, other_class[20][2])
        for words in ((), ("-n", "2"), ("-n", "2", "--elastic", "1:2")):
            self.train("--out", str(run), "--overwrite", *words)
            more = ("--resume", str(run), "train.steps=9", *words)
            for name, others, says in (("fewer.csv", rows[:40], "44 samples"), ("value.csv", changed, "another content"),
                                       ("class.csv", other_class, "another content"), ("order.csv", rows[1:] + rows[:1], "another content")):
                _, err = self.train(*more, f"data.path={self.table(name, others)}", code=2)
                self.assertEqual(len(self.error_lines(err)), 1, err)
                self.assertIn("was made on other training data: ", err)
                self.assertIn(says, err)
                self.assertIn("checkpoint.other_data=continue", err)
            _, err = self.train(*more, f"data.path={self.table('class.csv', other_class)}", "checkpoint.other_data=continue")
            self.assertIn("was made on other training data: ", err)
            manifest = json.loads((run / "checkpoints/step-00000009/manifest.json").read_text())
            self.assertEqual(manifest["bits"], "not reproducible (resumed on other training data)")
            self.assertEqual((run / "ledger.1").stat().st_size, 64 + 8 * 6)  # of the first six steps

    def test_test_data_and_another_place_are_no_other_training_data(self):
        rows = [[i % 7 / 7, i % 5 / 5, i % 3] for i in range(50)]
        self.config.write_text(f"model: {{name: mlp, hidden: [8]}}\ndata: {{path: {self.table('a.csv', rows)}, split: contiguous}}\n"
                               "train: {batch: 10, shards: 2, steps: 6, epochs: 9}\n")
        run = pathlib.Path(self.folder.name) / "run"
        self.train("--out", str(run))
        self.train("--resume", str(run), "train.steps=7", f"data.path={self.table('moved.csv', rows)}")
        rows[49] = [0.5, 0.5, 0]  # of the last tenth, which is tested
        self.train("--resume", str(run), "train.steps=8", f"data.path={self.table('tested.csv', rows)}")
        self.assertEqual(json.loads((run / "checkpoints/step-00000008/manifest.json").read_text())["bits"], "reproducible")

    def test_a_changed_configuration_is_named_with_what_becomes_of_schedule_and_place(self):
        run = pathlib.Path(self.folder.name) / "run"
        for words in ((), ("-n", "2")):
            self.train("--out", str(run), "--overwrite", "optim.schedule=cosine", "train.steps=20", *words)
            _, err = self.train("--resume", str(run), "train.steps=22", "train.epochs=4", *words)
            self.assertIn("was made with: train.epochs 2 -> 4: the run is not reproducible", err)
            self.assertRegex(err, r"the learning rate of step 20 is \S+, and was to be \S+: the schedule is that of a run of 68 steps, "
                                  r"and was that of 34 \(optim.schedule_steps=34 keeps the earlier schedule\)")
            self.assertNotIn("an epoch has", err)
            _, err = self.train("--resume", str(run), "train.steps=24", "train.batch=30", "optim.momentum=0.5", "model.layers=[flatten, linear: 10]",
                                *words, code=1)  # the model is another one
            _, err = self.train("--resume", str(run), "train.steps=24", "train.batch=30", "optim.momentum=0.5", *words)
            self.assertRegex(err, r"train.batch 60 -> 30, optim.momentum \S+ -> 0.5")
            self.assertIn("an epoch has 34 steps, and had 17: the run was at epoch 1.294 and continues at epoch 0.6471, so that "
                          "samples of 0.6471 epochs are used again", err)
            self.assertEqual((run / "ledger.1").stat().st_size, 64 + 8 * 22)
            _, err = self.train("--resume", str(run), "train.steps=25", *words)
            self.assertNotIn("is not the one", err)

    def test_a_model_that_a_program_built_is_left_to_it(self):
        run = pathlib.Path(self.folder.name) / "run"
        self.train("--out", str(run), "train.steps=3")
        text = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(text[re.search(r"^data:", text, re.M).start():])  # as a program leaves it
        self.assertNotIn("model:", (run / "config.yaml").read_text())
        for words in (("train", "--resume", run, "train.steps=5"), ("train", "--resume", run, "-n", "2", "train.steps=5"), ("eval", run),
                      ("predict", run, "/dev/null")):
            done = subprocess.run([TRIREME, *map(str, words)], capture_output=True, text=True, cwd=self.folder.name)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("the program that began this run built its model in C", done.stderr)
            self.assertEqual(len(self.error_lines(done.stderr)), 1, done.stderr)

    def test_a_data_file_cut_short_while_it_is_read_is_named(self):
        data = pathlib.Path(self.folder.name, "npy")
        data.mkdir()
        count = 100000
        for name, dtype, shape, nbytes in (("x", "|u1", (count, 784), count * 784), ("y", "<i4", (count,), count * 4)):
            head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
            path = data / f"{name}_train.npy"
            path.write_bytes(b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head.encode())
            os.truncate(path, 10 + len(head) + nbytes)
        self.config.write_text(f"model: {{name: mlp}}\ndata: {{path: {data}, format: npy}}\n")
        process = self.start("train.epochs=1000000")
        while process.poll() is None:  # x is mapped for a moment to see whether it is there, then for good, and y after it
            maps = pathlib.Path(f"/proc/{process.pid}/maps").read_text()
            if "x_train.npy" in maps and "y_train.npy" in maps:
                break
            time.sleep(0.001)
        os.truncate(data / "x_train.npy", 0)
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1, err)
        self.assertEqual(err.splitlines()[-1], f"error: {data}/x_train.npy: cut short by another program while it was read")


if __name__ == "__main__":
    unittest.main(verbosity=2)
