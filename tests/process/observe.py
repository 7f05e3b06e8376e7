#!/usr/bin/env python3
"""Log lines as objects whatever is in them; one trace id in all that a run leaves; traces that are asked for while it goes on; and who is slow,
with the cause, of a worker that is held up on purpose.

usage: observe.py TRIREME
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from launched import TRIREME, workers_in

CONFIG = """
model: {name: mlp, hidden: [64]}
data: {name: synthetic, synthetic_count: 1000}
train: {batch: 64, shards: 8, epochs: 3, threads: 1}
"""
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Observe(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        (self.folder / "run.yaml").write_text(CONFIG)
        self.running = []

    def tearDown(self):
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=60)
        self.temporary.cleanup()

    def call(self, *words, code=0, **env):
        run = subprocess.run([TRIREME, *words], cwd=self.folder, capture_output=True, timeout=120, env={**os.environ, **env})
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run

    def begin(self, *words, **env):
        """A run that goes on until it is stopped, and has made steps."""
        self.running.append(subprocess.Popen([TRIREME, "train", "run.yaml", "--out", "run", "train.epochs=100000000", *words], cwd=self.folder,
                                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **env}))
        self.wait(lambda: self.lines("run") > 3)
        return self.running[-1]

    def end(self, process):
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 130, text)
        return text

    def lines(self, run):
        path = self.folder / run / "metrics.jsonl"
        return path.read_text().count('"loss"') if path.exists() else 0

    def wait(self, condition, limit=60):
        until = time.monotonic() + limit
        while not condition():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)

    def objects(self, output):
        return [json.loads(line) for line in output.decode("utf-8", "strict").splitlines()]

    def head(self, run):
        return json.loads((self.folder / run / "metrics.jsonl").read_text().splitlines()[0])

    # --- lines and ids

    def test_each_line_is_an_object_whatever_it_says(self):
        hostile = b'run-\xff"\\\x01\xc3\xe2\x82'
        run = self.call("train", "run.yaml", "-n", "2", "--out", os.fsdecode(hostile), "monitor.log=json", TRACEPARENT=f"00-{TRACE}-{SPAN}-01")
        said = self.objects(run.stdout) + self.objects(run.stderr)
        self.assertTrue(any("run folder run-�\"" in line["message"] for line in said), said)
        for line in said:
            self.assertEqual(line["trace_id"], TRACE, line)
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("error", "warn", "info", "debug"))
        told = [line for line in said if line["message"].startswith("weights: ")]
        self.assertEqual([(line["rank"], line["step"]) for line in told], [(0, 47)])
        plain = self.call("train", "run.yaml", "--out", "plain").stdout.decode()
        self.assertIn(told[0]["message"], plain)
        logged = (self.folder / os.fsdecode(hostile) / "log/rank-0.log").read_bytes()
        self.assertIn(told[0]["message"], [line["message"] for line in self.objects(logged)])

    def test_failures_are_objects_too(self):
        run = self.call("train", "run.yaml", "train.batch=x", code=2, TRIREME_LOG="json")
        said = self.objects(run.stderr)
        self.assertEqual([line["level"] for line in said][0], "error")
        self.assertIn("train.batch", said[0]["message"])
        run = self.call("info", code=2, TRIREME_LOG="xml")
        self.assertIn(b"TRIREME_LOG: want text or json, got 'xml'", run.stderr)
        run = self.call("train", "run.yaml", "monitor.log=xml", code=2)
        self.assertIn(b"monitor.log", run.stderr)

    def test_one_id_is_in_all_that_a_run_leaves_and_stays_when_it_continues(self):
        run = self.call("train", "run.yaml", "-n", "2", "--out", "run", "--trace", "t.json:5-6", "train.steps=10", TRIREME_LOG="json")
        ids = {line["trace_id"] for line in self.objects(run.stdout) + self.objects(run.stderr)}
        other = json.loads((self.folder / "t.json").read_text())["otherData"]
        self.assertEqual(ids, {self.head("run")["trace_id"]})
        self.assertEqual(ids, {other["trace_id"]})
        traced = [line for line in self.objects(run.stderr) if line["message"].startswith("trace of steps")]
        self.assertEqual(len({clock["span_id"] for clock in other["clocks"]} | {traced[0]["span_id"], self.head("run")["span_id"]}), 4)
        again = self.call("train", "--resume", "run", "train.steps=20", "monitor.log=json")
        self.assertEqual({line["trace_id"] for line in self.objects(again.stdout)}, ids)
        self.assertEqual(self.head("run")["trace_id"], ids.pop())
        self.call("train", "run.yaml", "--out", "other", "train.steps=2")
        self.assertNotEqual(self.head("other")["trace_id"], other["trace_id"])
        self.call("train", "run.yaml", "-n", "2", "--out", "given", "train.steps=2", TRACEPARENT=f"00-{TRACE}-{SPAN}-01")
        self.assertEqual(self.head("given")["trace_id"], TRACE)
        run = self.call("train", "run.yaml", "--out", "bad", "train.steps=2", TRACEPARENT="00-xyz")
        self.assertIn(b"TRACEPARENT: want 00-", run.stderr)

    # --- traces

    def steps_of(self, path):
        found = json.loads(path.read_text())
        return {rank: [e["args"]["step"] for e in found["traceEvents"] if e["name"] == "step" and e["pid"] == rank]
                for rank in range(found["otherData"]["ranks"])}

    def test_a_running_job_is_asked_for_a_trace(self):
        launcher = self.begin("-n", "2")
        path = self.folder / self.call("trace", "run", "--steps", "3").stdout.decode().strip()
        steps = self.steps_of(path)
        self.assertEqual(len(steps[0]), 3)
        self.assertEqual(steps[0], steps[1])
        self.assertEqual(path.name, f"steps-{steps[0][0]}-{steps[0][-1]}.json")
        for pid in (launcher.pid, workers_in(self.folder)[1]):
            before = set(os.listdir(self.folder / "run/traces"))
            os.kill(pid, signal.SIGUSR2)
            self.wait(lambda: any(name.endswith(".json") for name in set(os.listdir(self.folder / "run/traces")) - before))
            new = [name for name in set(os.listdir(self.folder / "run/traces")) - before if name.endswith(".json")]
            self.assertEqual({rank: len(found) for rank, found in self.steps_of(self.folder / "run/traces" / new[0]).items()}, {0: 10, 1: 10})
        before = set(os.listdir(self.folder / "run/traces"))
        if os.geteuid() == 0: # who sees no process of the run, as on another host, asks by its folder
            run = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", TRIREME, "trace", "run", "--steps", "4"], cwd=self.folder,
                                 capture_output=True, timeout=120, check=True)
            self.assertEqual({len(found) for found in self.steps_of(self.folder / run.stdout.decode().strip()).values()}, {4})
        else:
            (self.folder / "run/traces/ask").write_text("4\n")
            self.wait(lambda: set(os.listdir(self.folder / "run/traces")) - before - {"ask"})
        self.assertFalse((self.folder / "run/traces/ask").exists())
        self.end(launcher)
        run = self.call("trace", "run", "--wait", "1", code=1)
        self.assertIn(b"rank 0, wherever it is, does not take what is asked for in its folder: has the run ended?", run.stderr)
        self.assertFalse((self.folder / "run/traces/ask").exists())
        self.assertIn(b"--steps: want a whole number", self.call("trace", "run", "--steps", "0", code=2).stderr)

    def test_workers_with_weights_of_their_own_trace_where_they_meet(self):
        launcher = self.begin("-n", "2", "parallel.sync=local", "parallel.local_steps=8")
        steps = self.steps_of(self.folder / self.call("trace", "run", "--steps", "2").stdout.decode().strip())
        self.assertEqual([steps[0][0] % 8, len(steps[0]), steps[0]], [0, 2, steps[1]])
        self.end(launcher)

    def test_a_path_that_cannot_be_written_is_reported_before_any_step(self):
        (self.folder / "here").mkdir()
        for path, said in (("nowhere/t.json", b"nowhere/t.json cannot be written"), ("here", b"want a file, got the folder here")):
            run = self.call("train", "run.yaml", "-n", "2", "--out", "no", "--trace", f"{path}:5-9", code=2)
            self.assertIn(said, run.stderr)
            self.assertEqual(self.lines("no"), 0)

    def test_slots_of_a_pipeline_are_in_the_trace_and_its_bubbles_in_the_summary(self):
        run = self.call("train", "run.yaml", "-n", "2", "--out", "pipe", "parallel.pipeline=2", "--trace", "p.json:3-6", "model.hidden=[64,64]")
        plain = self.call("train", "run.yaml", "--out", "alone", "model.hidden=[64,64]")
        self.assertEqual(re.search(b"weights: .*", run.stdout)[0], re.search(b"weights: .*", plain.stdout)[0])
        found = json.loads((self.folder / "p.json").read_text())["traceEvents"]
        slots = [e for e in found if e.get("cat") == "stages"]
        micros = sorted({e["args"]["micro_batch"] for e in slots})
        self.assertEqual(micros, list(range(len(micros))))
        for rank in (0, 1):
            for name in ("forward", "backward"):
                own = [(e["args"]["step"], e["args"]["micro_batch"]) for e in slots if e["pid"] == rank and e["name"] == name]
                self.assertEqual(sorted(own), [(step, micro) for step in range(3, 7) for micro in micros])
            self.assertEqual({e["args"]["stage"] for e in slots if e["pid"] == rank}, {rank})
        told = json.loads(self.call("trace", "summarize", "p.json", "--json").stdout)
        self.assertEqual([stage["slots"] for stage in told["stages"]], [4 * len(micros)] * 2)
        for stage in told["stages"]:
            self.assertTrue(0 <= stage["bubble"] < 1 and stage["critical_us"] > 0)
        self.assertIn(b"micro-batches  forward ms", self.call("trace", "summarize", "p.json").stdout)

    def test_bubbles_are_reckoned_from_slots_that_are_known(self):
        # Two stages, two micro-batches: rank 1 begins a slot late and ends one early; up takes 1 ms, down 2.
        events, ms = [], 1000
        for rank, slots in ((0, ((0, 0, "forward"), (1, 1, "forward"), (4, 0, "backward"), (7, 1, "backward"))),
                            (1, ((1, 0, "forward"), (2, 0, "backward"), (4, 1, "forward"), (5, 1, "backward")))):
            events.append({"ph": "X", "name": "step", "cat": "steps", "ts": 0, "dur": 9 * ms, "pid": rank, "args": {"step": 0}})
            events.append({"ph": "X", "name": "pipeline", "cat": "compute", "ts": 0, "dur": 9 * ms, "pid": rank, "args": {"step": 0}})
            for at, micro, name in slots:
                events.append({"ph": "X", "name": name, "cat": "stages", "ts": at * ms, "dur": (1 if name == "forward" else 2) * ms, "pid": rank,
                               "args": {"step": 0, "stage": rank, "micro_batch": micro}})
        (self.folder / "k.json").write_text(json.dumps({"otherData": {"trireme_trace": 1, "ranks": 2, "from": 0, "to": 0}, "traceEvents": events}))
        told = json.loads(self.call("trace", "summarize", "k.json", "--json").stdout)
        for stage in told["stages"]:
            self.assertAlmostEqual(stage["bubble"], 1 / 3)
            self.assertEqual((stage["ranks"], stage["slots"], stage["forward_us"], stage["backward_us"]), (1, 2, 2000, 4000))
        # up 0 on stage 0, all four of stage 1, down 1 on stage 0: 9 ms without a gap
        self.assertEqual((told["stages_critical_us"], told["stages_waited_us"]), (9000, 0))
        self.assertEqual([stage["critical_us"] for stage in told["stages"]], [3000, 6000])
        self.assertIn("are idle 33 %", told["advice"])

    # --- who is slow

    def slow(self):
        path = self.folder / "run/metrics.jsonl"
        return [line for line in map(json.loads, path.read_text().splitlines()[:-1]) if line.get("event") == "slow"]

    def stopped_run(self, *words):
        """Rank 1 is stopped again and again, from before the first look on: what the one that names it says."""
        launcher = self.begin("-n", "2", "monitor.watch_every_s=0.4", "monitor.step_every_s=0.02", "comm.heartbeat_ms=0",
                              "train.batch=512", *words)
        victim, until = workers_in(self.folder)[1], time.monotonic() + LIMIT_S
        while not [line for line in self.slow() if line["rank"] == 1]:
            self.assertLess(time.monotonic(), until)
            for number, seconds in ((signal.SIGSTOP, 0.08), (signal.SIGCONT, 0.02)):
                os.kill(victim, number)
                time.sleep(seconds)
        told = [line for line in self.slow() if line["rank"] == 1][0]
        self.assertIn(told["cause"], ("stopped", "queue"), self.slow()) # on a loaded machine others have its core meanwhile
        self.assertIn("rank 1 is slow: the others wait for it", told["text"])
        self.assertGreater(told["share"], 0.1)
        lines = self.end(launcher) # stragglers.c may have said it first: then the event has no line of its own
        self.assertTrue(told["text"] in lines or re.search(r"rank 1 \(.*\) is [\d.]+ times slower than the median", lines), lines)

    def test_a_worker_that_is_stopped_again_and_again_is_named(self):
        self.stopped_run("model.hidden=[1024]")

    def test_a_worker_that_is_stopped_at_its_data_is_named(self):
        """Most of a step is preparing its batch: by itself; or by a thread, for which it waits."""
        for prefetch in (0, 2):
            with self.subTest(prefetch=prefetch):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                self.stopped_run("model.hidden=[1]", "data.synthetic_width=4096", f"data.prefetch={prefetch}")

    def test_of_workers_of_servers_one_that_is_stopped_is_named_too(self):
        self.stopped_run("--servers", "1", "model.hidden=[1024]")

    def test_workers_of_servers_are_asked_for_a_trace(self):
        launcher = self.begin("-n", "3", "--servers", "2", "monitor.watch_every_s=0.2")
        for number in (0, 1): # of the first worker, and of another one, which tells the first of it
            before = set(os.listdir(self.folder / "run/traces")) if (self.folder / "run/traces").exists() else set()
            os.kill(workers_in(self.folder)[number], signal.SIGUSR2)
            found = lambda: [name for name in os.listdir(self.folder / "run/traces") if name.endswith(".json") and name not in before]
            self.wait(lambda: (self.folder / "run/traces").exists() and found())
            steps = self.steps_of(self.folder / "run/traces" / found()[0])
            self.assertEqual({rank: len(made) for rank, made in steps.items()}, {0: 10, 1: 10, 2: 10})
            self.assertEqual([steps[1], steps[2]], [steps[0]] * 2)
        lines = self.end(launcher)
        self.assertNotIn("did not send theirs in time", lines)

    def test_a_window_of_which_workers_hear_too_late_is_tried_again(self):
        """The first worker, which says from which step on all trace, is a second behind the others."""
        launcher = self.begin("-n", "3", "--servers", "1", "ps.consistency=async", "monitor.watch_every_s=0.2", "comm.heartbeat_ms=0")
        first = workers_in(self.folder)[0]
        for number, seconds in ((signal.SIGSTOP, 1.2), (signal.SIGCONT, 0)):
            os.kill(first, number)
            time.sleep(seconds)
        steps = self.steps_of(self.folder / self.call("trace", "run").stdout.decode().strip())
        self.assertEqual([steps[0], len(steps[0])], [steps[1], 10])
        self.assertEqual(steps[0], steps[2])
        self.end(launcher)


if __name__ == "__main__":
    unittest.main()
