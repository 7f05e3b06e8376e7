#!/usr/bin/env python3
"""Parameter servers through the program: the `weights:` line of one process for any numbers of workers and servers, also when
workers and servers are killed on the way; and clear words where that cannot be.

usage: servers.py TRIREME
"""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time
import unittest

from launched import LIMIT_S, TRIREME, long_test, ranks_of, workers_in
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
    - linear: {out: 300, relu: true}
    - linear: classes
data: {name: synthetic, synthetic_count: 3000, synthetic_width: 32}
train: {batch: 60, epochs: 2, shards: 8, eval_every: 0}
optim: {name: adamw, lr: 0.01, clip_norm: 1}
ps: {block_kib: 16}
comm: {timeout_s: 60}
"""
LONG = ["train.epochs=4000", "train.steps=STEPS", "data.synthetic_count=600"]


class Servers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        (self.path / "run.yaml").write_text(CONFIG)

    def tearDown(self):
        self.folder.cleanup()

    def start(self, *words, path=None):
        """path: a folder of programs that come first."""
        environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"} if path else None
        with open(self.path / "said", "w") as said:
            return subprocess.Popen([TRIREME, "train", "run.yaml", *words], cwd=self.path, stdout=said, stderr=said, env=environment)

    def run_it(self, *words, code=0):
        process = self.start(*words)
        process.wait(LIMIT_S)
        text = (self.path / "said").read_text()
        self.assertEqual(process.returncode, code, text)
        return text

    def weights(self, *words):
        return re.search(r"weights: xxh3 (\w+)", self.run_it(*words)).group(1)

    def test_any_numbers_give_the_weights_of_one_process(self):
        alone = self.weights("--out", "alone")
        for workers, servers, replicas in ((1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 3, 2), (2, 1, 2)):
            found = self.weights("-n", str(workers), "--servers", str(servers), f"ps.replicas={replicas}")
            self.assertEqual(found, alone, f"{workers} workers, {servers} servers, {replicas} replicas")

    def test_layers_in_parts_are_saved_by_servers(self):
        cut = ("model.hidden=[24]", "parallel.tensor_parts=4", "train.steps=10")
        (self.path / "run.yaml").write_text(re.sub(r"model:.*?\ndata:", "model: {name: mlp, hidden: [24]}\ndata:", CONFIG, flags=re.S))
        alone = self.weights("--out", "alone", *cut)
        self.assertEqual(self.weights("-n", "2", "--servers", "2", "--out", "apart", "ps.block_kib=16", *cut), alone)
        done = subprocess.run([TRIREME, "eval", "apart"], cwd=self.path, text=True, capture_output=True)
        self.assertIn(alone, done.stdout, done.stderr)

    def test_encrypted_lines_and_half_a_run(self):
        alone = self.weights("--out", "alone")
        self.run_it("-n", "2", "--servers", "2", "comm.encrypt=on", "train.steps=20", "--out", "half")
        self.assertEqual(self.weights("-n", "3", "--servers", "1", "comm.encrypt=on", "train.steps=0", "--resume", "half"),
                         alone)

    @staticmethod
    def is_settled(text, servers):
        """Every server has said that its backup has all, of the newest view; two deaths at once would be one too many."""
        views = [int(version) for version in re.findall(r"view (\d+):", text)]
        wanted = rf"\[server (\d+)\] view {max(views, default=0)}: server \d+ has a copy"
        return len(set(re.findall(wanted, text))) == servers

    def stop_one(self, pid, number, pause):
        """A server hangs until it has been done without, and a while longer; how long that took. Who was dialing it just then says that it is gone."""
        said, mark, start = self.path / "said", (self.path / "said").stat().st_size, time.monotonic()
        try:
            os.kill(pid, signal.SIGSTOP)
            while (not re.search(rf"server {number} (has been silent|is gone)", said.read_text()[mark:])
                   and time.monotonic() < start + 30):
                time.sleep(0.005)
            self.stopped.append(time.monotonic() - start)
            time.sleep(pause)
        finally:
            os.kill(pid, signal.SIGCONT)

    def kill_some(self, process, ranks, kills, pause, seed, servers=0, workers=2, stops=False):
        draw = random.Random(seed)
        killed, self.stopped = 0, []
        said, mark = self.path / "said", 0
        wants_saved = any("checkpoint." in word and not word.endswith("=0") for word in process.args)
        while not has_steps(self.path / "killed") or (wants_saved and not self.saved()):
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        while killed < kills and process.poll() is None:
            time.sleep(pause * (1 + draw.random()))
            if servers > 0 and not self.is_settled(said.read_text()[mark:], servers):
                continue
            rank = draw.choice(ranks)
            pid = ranks_of(process.pid).get(rank)
            if pid:
                try:
                    mark = said.stat().st_size if rank >= workers else mark
                    if stops and (killed == 0 or draw.random() < 0.5):
                        self.stop_one(pid, rank - workers, draw.random() / 2)
                    else:
                        os.kill(pid, signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass
        return killed

    def killed_run(self, ranks, kills, pause, steps, servers, *words, stops=False, seed=7):
        long = [word.replace("STEPS", str(steps)) for word in LONG]
        alone = self.weights(*long, "--out", "alone")
        process = self.start(*long, "--out", "killed", "--restarts", "1000", "-n", "2", "--servers", str(servers), *words)
        backed = servers if "ps.replicas=2" in words else 0
        killed = self.kill_some(process, ranks, kills, pause, seed, backed, stops=stops)
        process.wait(LIMIT_S)
        text = (self.path / "said").read_text()
        self.assertEqual(process.returncode, 0, text)
        self.struck = killed
        self.assertGreaterEqual(killed, min(2, kills), "the run was over too soon")
        self.assertEqual(re.search(r"weights: xxh3 (\w+)", text).group(1), alone, text)
        return text

    @long_test
    def test_killed_workers_are_replaced_and_the_weights_stay_the_same(self):
        self.killed_run([0, 1], 8, 0.2, 4000, 2)

    def test_killed_servers_are_replaced_by_their_backups(self):
        text = self.killed_run([2, 3], 12, 0.05, 3000, 2, "ps.replicas=2")
        self.assertIn("its backup takes over", text)

    @long_test
    def test_killed_servers_of_three(self):
        self.killed_run([2, 3, 4], 12, 0.05, 3000, 3, "ps.replicas=2")

    @long_test
    def test_stopped_and_killed_servers(self):
        """A server that is stopped keeps its lines; when it goes on it finds that others have its place."""
        text = self.killed_run([2, 3, 4], 5, 0.05, 3000, 3, "ps.replicas=2", stops=True)
        self.assertIn("has been silent for", text)
        self.assertIn("excludes this server: it rejoins without its state", text)

    @long_test
    def test_servers_that_are_killed_or_hang_before_they_have_weights(self):
        """The moment is one of the first milliseconds; whichever it meets, the run goes on with the same weights."""
        short = ("train.epochs=4000", "train.steps=1500")
        alone = self.weights("--out", "alone", *short)
        said = self.path / "said"
        for number, (pause, stops) in enumerate(((0.001, True), (0.002, True), (0.01, False), (0.02, False))):
            process = self.start("--out", f"early{number}", "--restarts", "9", "-n", "2", "--servers", "2", "ps.replicas=2",
                                 *short)
            while "table 'weights'" not in said.read_text() and process.poll() is None:
                time.sleep(0.001)
            time.sleep(pause)
            pid = ranks_of(process.pid)[2 + number % 2]
            os.kill(pid, signal.SIGSTOP if stops else signal.SIGKILL)
            if stops:
                time.sleep(0.8)
                os.kill(pid, signal.SIGCONT)
            process.wait(LIMIT_S)
            text = said.read_text()
            self.assertEqual(process.returncode, 0, text)
            self.assertEqual(re.search(r"weights: xxh3 (\w+)", text).group(1), alone, text)

    @long_test
    def test_killed_workers_and_servers(self):
        self.killed_run([0, 1, 2, 3, 4], 8, 0.05, 3000, 3, "ps.replicas=2")

    @long_test
    def test_a_stopped_worker_is_left_out_and_continues_with_the_newest_step(self):
        process = self.start(*[word.replace("STEPS", "3000") for word in LONG], "--out", "stopped", "-n", "3", "--servers", "2",
                             "ps.backup_workers=1")
        log = self.path / "stopped" / "metrics.jsonl"
        lines = lambda: log.read_text().count("\n") if log.exists() else 0
        while lines() < 20 and process.poll() is None:
            time.sleep(0.02)
        pid = ranks_of(process.pid)[2]
        os.kill(pid, signal.SIGSTOP)
        before = lines()
        deadline = time.monotonic() + LIMIT_S
        while lines() < before + 100 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        went_on = lines() - before
        os.kill(pid, signal.SIGCONT)
        process.wait(LIMIT_S)
        text = (self.path / "said").read_text()
        self.assertEqual(process.returncode, 0, text)
        self.assertGreaterEqual(went_on, 100, text)
        counts = re.search(r"steps without a worker's part \(ps.backup_workers\): 0: (\d+) 1: (\d+) 2: (\d+)", text)
        self.assertIsNotNone(counts, text)
        self.assertGreaterEqual(int(counts.group(3)), 100)
        self.assertIn("bits: not reproducible (ps.backup_workers)", text)

    def survives(self, workers, kills, *words):
        """Of some workers and two servers with backups any are killed."""
        process = self.start(*[word.replace("STEPS", "2500") for word in LONG], "--out", "killed", "--restarts", "1000",
                             "-n", str(workers), "--servers", "2", "ps.replicas=2", *words)
        killed = self.kill_some(process, range(workers + 2), kills, 0.1, 11, 2, workers)
        process.wait(LIMIT_S)
        text = (self.path / "said").read_text()
        self.assertEqual(process.returncode, 0, text)
        self.assertGreaterEqual(killed, min(2, kills), "the run was over too soon")
        return text

    @long_test
    def test_backup_workers_and_killed_processes(self):
        self.survives(3, 8, "ps.backup_workers=1")

    @long_test
    def test_dealt_work_and_killed_processes(self):
        self.survives(3, 8, "ps.consistency=async", "ps.schedule=dynamic")

    @long_test
    def test_rounded_weights_and_killed_processes(self):
        alone = self.weights(*[word.replace("STEPS", "2500") for word in LONG], "-n", "1", "--servers", "1", "--out", "one",
                             "ps.values=bf16")
        text = self.survives(2, 6, "ps.values=bf16")
        self.assertEqual(re.search(r"weights: xxh3 (\w+)", text).group(1), alone, text)

    def goes_back(self, ranks, text, *words):
        """The run ends with the weights of one in which nobody was killed."""
        words = ["train.epochs=4000", "train.steps=500", "data.synthetic_count=600", *words]
        alone = self.weights(*words, "--out", "alone")
        process = self.start("--out", "killed", "-n", "2", "--servers", "2", "--restarts", "5", *words)
        while not has_steps(self.path / "killed") or ("checkpoint.every_steps=20" in words and not self.saved()):
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        for pid in [ranks_of(process.pid)[rank] for rank in ranks]:
            os.kill(pid, signal.SIGKILL)
        process.wait(LIMIT_S)
        said = (self.path / "said").read_text()
        self.assertEqual(process.returncode, 0, said)
        self.assertRegex(said, text)
        self.assertEqual(re.findall(r"weights: xxh3 (\w+)", said), [alone], said)

    def test_a_killed_server_without_a_backup_and_without_a_checkpoint_begins_the_run_again(self):
        self.goes_back([3], "there is no checkpoint in killed yet: the run starts again from step 0", "checkpoint.every_epochs=0")

    def test_more_servers_that_are_killed_than_hold_each_block_take_the_run_back(self):
        rows = [("checkpoint.every_steps=20", r"goes back from step \d+ to step \d*[02468]0, its newest checkpoint"),
                ("checkpoint.every_epochs=0", "there is no checkpoint in killed yet: the run starts again from step 0")]
        for word, text in rows:
            with self.subTest(word):
                subprocess.run(["rm", "-rf", "killed", "alone"], cwd=self.path, check=True)
                self.goes_back([2, 3], text, "ps.replicas=2", word)
                self.assertIn("more servers are lost than hold each block (ps.replicas 2)", (self.path / "said").read_text())

    def test_a_host_that_fails_with_its_servers_loses_nothing(self):
        """Two hosts that are this machine; the backups of both servers of the second one are on the first one."""
        (self.path / "hosts").write_text("127.0.0.1 slots=4\n127.0.0.2 slots=2\n")
        for host in ("127.0.0.1", "127.0.0.2"):
            (self.path / f"{host}.yaml").write_text(CONFIG.replace("comm: {", f"comm: {{host: {host}, "))
        (self.path / "ssh").write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\n'
                                       'exec sh -c "$(printf %s "$2" | sed "s/run.yaml/$1.yaml/")"\n')
        (self.path / "ssh").chmod(0o755)
        words = [word.replace("STEPS", "1500") for word in LONG] + ["checkpoint.every_epochs=0"]
        alone = self.weights(*words, "--out", "alone")
        process = self.start(*words, "--out", "killed", "-n", "2", "--servers", "4", "ps.replicas=2", "--restarts", "9", "--hosts", "hosts",
                             path=self.path)
        while not has_steps(self.path / "killed") or not self.is_settled((self.path / "said").read_text(), 4):
            self.assertIsNone(process.poll(), (self.path / "said").read_text())
            time.sleep(0.01)
        found = workers_in(self.path)
        for rank in (4, 5):
            os.kill(found[rank], signal.SIGKILL)
        process.wait(LIMIT_S)
        said = (self.path / "said").read_text()
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(re.findall(r"weights: xxh3 (\w+)", said), [alone], said)
        self.assertNotIn("more servers are lost than hold each block", said)
        self.assertIn("its backup takes over", said)

    def saved(self):
        return list((self.path / "killed" / "checkpoints").glob("step-*"))

    def test_a_killed_server_without_a_backup_takes_the_run_back_to_its_checkpoint(self):
        text = self.killed_run([2, 3], 2, 0.1, 2400, 2, "checkpoint.every_steps=50")
        steps = re.findall(r"goes back from step (\d+) to step (\d+), its newest checkpoint; the (\d+) steps between", text)
        self.assertGreaterEqual(len(steps), 1, text)
        for reached, back, between in steps:
            self.assertEqual(int(reached) - int(back), int(between), text)
            self.assertEqual(int(back) % 50, 0, text)

    @long_test
    def test_a_server_that_is_killed_while_the_leader_evaluates_takes_back_who_was_done(self):
        (self.path / "run.yaml").write_text(re.sub(r"model:.*?\ndata:", "model: {name: mlp, hidden: [2000, 2000]}\ndata:", CONFIG, flags=re.S))
        end = ["data.synthetic_count=600000", "train.epochs=1", "train.steps=12", "train.eval_every_steps=12", "optim.name=sgd",
               "ps.block_kib=256", "checkpoint.every_steps=10"]
        alone = self.weights(*end, "--out", "alone")
        process = self.start(*end, "--out", "killed", "-n", "2", "--servers", "2", "--restarts", "5")
        done = self.path / "killed" / "ranks" / "rank-1.jsonl" # ends with the last step when worker 1 has made it
        while not (done.exists() and '"step":11,' in done.read_text()):
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        os.kill(ranks_of(process.pid)[3], signal.SIGKILL)
        process.wait(LIMIT_S)
        text = (self.path / "said").read_text()
        self.assertEqual(process.returncode, 0, text)
        self.assertRegex(text, r"goes back from step 12 to step 10, its newest checkpoint")
        self.assertEqual(re.findall(r"weights: xxh3 (\w+)", text), [alone], text)

    def test_where_weights_have_no_common_step_the_killed_server_alone_goes_back(self):
        process = self.start(*[word.replace("STEPS", "2400") for word in LONG], "--out", "killed", "--restarts", "1000", "-n", "2",
                             "--servers", "2", "ps.consistency=ssp", "checkpoint.every_steps=50")
        self.kill_some(process, [2, 3], 1, 0.1, 5)
        process.wait(LIMIT_S)
        text = (self.path / "said").read_text()
        self.assertEqual(process.returncode, 0, text)
        self.assertRegex(text, r"parameter server \d was lost: its \d blocks go back to step \d+ \(killed/checkpoints/step-\d+\), "
                               r"the others stay; lost are the pushes to them of \d+ steps")
        kept = self.saved()[0] / "manifest.json"
        self.assertLessEqual(json.loads(kept.read_text())["pushes_least"], json.loads(kept.read_text())["pushes_most"])

    def test_a_run_that_is_stopped_is_saved_and_continues(self):
        long = [word.replace("STEPS", "3000") for word in LONG]
        process = self.start(*long, "--out", "killed", "-n", "2", "--servers", "2", "checkpoint.every_epochs=0")
        while not has_steps(self.path / "killed"):
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT_S)
        text = (self.path / "said").read_text()
        step = re.search(r"trireme: stopped by a signal after step (\d+), which is saved", text)
        self.assertEqual(process.returncode, 143, text)
        self.assertIsNotNone(step, text)
        self.assertEqual([int(path.name[5:]) for path in self.saved()], [int(step.group(1))], text)
        end = ["train.steps=%d" % (int(step.group(1)) + 20)]
        self.assertEqual(self.weights(*long, *end, "--resume", "killed", "-n", "3", "--servers", "1"),
                         self.weights(*long, *end, "--out", "alone"))

    def test_stale_workers_tell_how_far_ahead_they_were(self):
        text = self.run_it("-n", "2", "--servers", "2", "ps.consistency=ssp", "ps.staleness=1")
        counts = dict(re.findall(r" (\d+): (\d+)", re.search("steps ahead of the slowest worker:(.*)", text).group(1)))
        self.assertLessEqual(max(map(int, counts)), 1)
        self.assertIn("bits: not reproducible (ps.consistency ssp)", text)

    def test_any_start_order_and_tf_config(self):
        """Processes that nobody launched together, as TFJob starts them: the last comes long after the first."""
        alone = self.weights("--out", "alone")
        cluster = {"chief": [f"127.0.0.1:{free_port()}"], "worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2", "127.0.0.1:3"]}
        tasks = [("ps", 1), ("worker", 0), ("ps", 0), ("chief", 0)]
        random.shuffle(tasks)
        processes = []
        for kind, index in tasks:
            config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
            processes.append(subprocess.Popen([TRIREME, "train", "run.yaml", "parallel.sync=ps", "--out", "tf"],
                                              cwd=self.path, env={**os.environ, "TF_CONFIG": config},
                                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            time.sleep(0.3)
        texts = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
        self.assertEqual([process.returncode for process in processes], [0] * 4, texts)
        chief = texts[tasks.index(("chief", 0))]
        self.assertEqual(re.search(r"weights: xxh3 (\w+)", chief).group(1), alone)

    def test_the_evaluator_of_tf_config_follows_the_run(self):
        cluster = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}
        config = json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}})
        start = lambda *words: subprocess.Popen([TRIREME, "train", "run.yaml", *words], cwd=self.path, text=True,
                                                env={**os.environ, "TF_CONFIG": config}, stdout=subprocess.PIPE,
                                                stderr=subprocess.STDOUT)
        evaluator = start("--out", "run")  # before there is anything
        self.run_it("-n", "2", "--servers", "1", "--out", "run", "checkpoint.every_steps=25")
        text = evaluator.communicate(timeout=LIMIT_S)[0]
        self.assertEqual(evaluator.returncode, 0, text)
        lines = [json.loads(line) for line in (self.path / "run" / "evaluator.jsonl").read_text().splitlines()]
        self.assertEqual(lines[-1]["step"], 99, text)
        metrics = [json.loads(line) for line in (self.path / "run" / "metrics.jsonl").read_text().splitlines()]
        own = [line for line in metrics if "test_loss" in line]
        self.assertEqual(lines[-1], own[-1])
        nowhere = start()
        self.assertIn("want --out FOLDER", nowhere.communicate(timeout=LIMIT_S)[0])
        self.assertEqual(nowhere.returncode, 2)

    def test_what_cannot_be_is_refused(self):
        for words, says in (
            (["parallel.sync=ps"], "there are no parameter servers: want --servers N"),
            (["--servers", "1"], "--servers requires the number of workers"),
            (["-n", "2", "--servers", "1", "parallel.sync=zero1"], "--servers requires parallel.sync ps, got zero1"),
            (["-n", "2", "--servers", "1", "train.precision=f16"], "train.precision f16"),
            (["-n", "2", "--restarts", "1"], "--restarts requires --servers"),
            (["-n", "3", "--servers", "1", "train.shards=2"], "3 workers but train.shards is 2"),
            (["-n", "2", "--servers", "1", "parallel.tensor=2"], "want parallel.tensor 1 and parallel.pipeline 1"),
            (["-n", "2", "--servers", "1", "ps.consistency=none"], "ps.consistency"),
            (["-n", "2", "--servers", "1", "ps.backup_workers=2"], "want fewer than there are workers (2)"),
            (["-n", "2", "--servers", "1", "ps.backup_workers=1", "ps.consistency=ssp"], "want bsp, or 0"),
            (["-n", "2", "--servers", "1", "ps.schedule=dynamic"], "want ssp, async, or ps.schedule static"),
        ):
            process = self.start(*words)
            process.wait(LIMIT_S)
            text = (self.path / "said").read_text()
            self.assertIn(process.returncode, (1, 2), text)
            self.assertIn(says, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
