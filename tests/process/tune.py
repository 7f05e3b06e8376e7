#!/usr/bin/env python3
"""Sweeps of real trials: killed and gone on with, ended early, driven from outside; `trireme top` on their runs.

usage: tune.py TRIREME EXAMPLES. Optuna: a Python that has it in TRIREME_PYPI, else /tmp/trireme-venv/bin/python.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from launched import LIMIT_S, PYPI, TRIREME, has_address_sanitizer, pypi_has

EXAMPLES = pathlib.Path(sys.argv[1])
CONFIG = """
model: {name: mlp, hidden: [16]}
data: {name: synthetic, synthetic_count: 640}
train: {batch: 64, epochs: 4}
monitor: {tensorboard: false}
"""
SWEEP = """
config: c.yaml
trials: 9
steps: 36
search: SEARCH
schedule: asha
eta: 3
startup: 4
parallel: 1
space:
  optim.name: {choice: [sgd, adam]}
  optim.lr: {log: [1e-4, 1]}
  optim.momentum: {uniform: [0, 0.95], when: {optim.name: sgd}}
  model.hidden: {choice: [[8], [16, 16]]}
"""


def trireme(*words, code=0, **more):
    run = subprocess.run([TRIREME, *map(str, words)], capture_output=True, text=True, timeout=LIMIT_S, **more)
    assert run.returncode == code, f"{words}: exit {run.returncode}\n{run.stdout}{run.stderr}"
    return run.stdout if code == 0 else run.stderr


def report(folder):
    found = json.loads(trireme("tune", "report", folder, "--json"))
    for trial in found["trials"]:
        del trial["seconds"]
    return found


class Tune(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.at = pathlib.Path(self.folder.name)
        (self.at / "c.yaml").write_text(CONFIG)
        (self.at / "tpe.yaml").write_text(SWEEP.replace("SEARCH", "tpe"))

    def tearDown(self):
        self.folder.cleanup()

    def test_a_killed_sweep_continues_to_the_same_end(self):
        whole, struck = self.at / "whole", self.at / "struck"
        trireme("tune", self.at / "tpe.yaml", "--out", whole)
        tuner = subprocess.Popen([TRIREME, "tune", self.at / "tpe.yaml", "--out", struck, "--json"], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(5):
            self.assertIn("trial", json.loads(tuner.stdout.readline()))
        os.kill(tuner.pid, signal.SIGKILL)
        tuner.wait()
        tuner.stdout.close()
        before = len(report(struck)["trials"])
        self.assertTrue(1 < before < 9, before)
        trireme("tune", self.at / "tpe.yaml", "--out", struck)
        self.assertEqual(report(struck), report(whole))  # the same trials, each once, with the same values
        found = report(whole)
        self.assertEqual(sorted(t["trial"] for t in found["trials"]), list(range(9)))
        self.assertEqual([t["step"] for t in found["trials"]].count(36), 1)
        self.assertLess(found["steps"], 9 * 36 / 3)
        self.check_bits(whole, found)
        self.assertIn("</html>", (whole / "report.html").read_text())
        wrong = self.at / "other.yaml"
        wrong.write_text(SWEEP.replace("SEARCH", "random"))
        self.assertIn("says something else", trireme("tune", wrong, "--out", whole, code=2))
        top = json.loads(trireme("top", whole / f"trial-{found['best']:04d}", "--once", "--json"))
        self.assertEqual([top["state"], top["steps_done"], top["steps"], top["ranks"]], ["ended", 36, 36, []])
        self.assertAlmostEqual(top["test_loss"], found["trials"][0]["value"])

    def check_bits(self, folder, found):
        """A trial that waited at two rungs has the weights of a run that was never interrupted."""
        best = found["trials"][0]
        self.assertEqual(best["trial"], found["best"])
        log = (folder / "log" / f"trial-{best['trial']:04d}.log").read_text()
        self.assertEqual(len(re.findall(r"^epoch 1  step 10 ", log, re.M)), 1, log)  # it went on, and did no step twice
        words = [f"{name}={value}" for name, value in best["params"].items()]
        plain = trireme("train", self.at / "c.yaml", "-n", "2", "--out", self.at / "plain", *words, "train.steps=36")
        self.assertEqual(re.findall(r"weights: xxh3 (\w+)", log)[2:], re.findall(r"weights: xxh3 (\w+)", plain))
        again = trireme("train", folder / "best.yaml", "--out", self.at / "again")
        self.assertEqual(re.findall(r"weights: .*", again), re.findall(r"weights: .*", plain))

    def test_another_program_says_what_is_tried(self):
        lines = [{"run": 7, "params": {"optim.lr": 0.1}, "steps": 10}, {"run": 8, "params": {"optim.lr": -1}},
                 {"ask": True}, {"tell": 9, "step": 12, "value": 0.5}, {"tell": 9, "value": 0.25}, {"tell": 99, "value": 1},
                 {"run": 7, "params": {}}, {"what": 1}]
        out = trireme("tune", self.at / "tpe.yaml", "--ask-tell", "--out", self.at / "asked",
                      input="\n".join(map(json.dumps, lines)) + "\nnothing\n")
        said = [json.loads(line) for line in out.splitlines()]
        errors = [line["error"] for line in said if "error" in line and "trial" not in line]
        self.assertEqual(len(errors), 4, errors)
        of = {n: [line for line in said if line.get("trial") == n] for n in (7, 8, 9)}
        self.assertEqual([of[7][0]["state"], of[7][-1]["state"], of[7][-1]["step"]], ["running", "waiting", 10])
        self.assertEqual(of[7][-2], {"trial": 7, "step": 10, "value": of[7][-1]["value"]})
        self.assertEqual(of[8][-1]["state"], "failed")
        self.assertIn("optim.lr", of[8][-1]["error"])
        self.assertEqual(set(of[9][0]["params"]) - {"optim.momentum"}, {"optim.name", "optim.lr", "model.hidden"})
        self.assertEqual(of[9][1:], [{"trial": 9, "step": 12, "stop": False},
                                     {"trial": 9, "state": "done", "step": 36, "value": 0.25}])

    def test_a_trial_that_was_stopped_keeps_the_value_of_its_step(self):
        lines = [{"ask": True}] * 3 + [{"tell": number, "step": 12, "value": value} for number, value in enumerate((0.1, 0.2, 0.9))]
        out = trireme("tune", self.at / "tpe.yaml", "--ask-tell", "--out", self.at / "asked",
                      input="\n".join(map(json.dumps, lines + [{"tell": 2, "value": 0.9}, {"tell": 0, "value": 0.05}])))
        said = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([line["stop"] for line in said[3:6]], [False, False, True])
        self.assertEqual(said[6:], [{"trial": 2, "state": "stopped", "step": 12, "value": 0.9},
                                    {"trial": 0, "state": "done", "step": 36, "value": 0.05}])

    def test_a_trial_is_stopped_while_it_runs(self):
        (self.at / "c.yaml").write_text(CONFIG.replace("epochs: 4", "epochs: 1000000, eval_every_steps: 50"))
        (self.at / "s.yaml").write_text("config: c.yaml\n")
        with subprocess.Popen([TRIREME, "tune", self.at / "s.yaml", "--ask-tell", "--out", self.at / "asked"], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1) as tuner:
            tuner.stdin.write('{"run": true, "params": {}}\n')
            while "value" not in json.loads(tuner.stdout.readline()):
                pass
            top = json.loads(trireme("top", self.at / "asked/trial-0000", "--once", "--json"))
            self.assertEqual([top["state"], [r["rank"] for r in top["ranks"]]], ["running", [0]])
            self.assertGreater(top["ranks"][0]["memory_bytes"], 1 << 20)
            self.assertIn("another trireme tune", trireme("tune", self.at / "s.yaml", "--ask-tell", "--out",
                                                          self.at / "asked", code=2, stdin=subprocess.DEVNULL))
            tuner.stdin.write('{"stop": 0}\n')
            tuner.stdin.close()
            last = json.loads(tuner.stdout.readlines()[-1])
        self.assertEqual([last["state"], tuner.returncode], ["stopped", 0])

    def test_the_fastest_settings_and_the_same_weights(self):
        (self.at / "speed.yaml").write_text("config: c.yaml\nmetric: step_seconds\nworkers: 2\nsearch: grid\nsteps: 30\nspace:\n"
                                            "  parallel.bucket_kib: {choice: [16, 1024]}\n  train.shards_at_once: {choice: [0, 1]}\n")
        trireme("tune", self.at / "speed.yaml", "--out", self.at / "speed")
        trials, weights = report(self.at / "speed")["trials"], set()
        self.assertEqual(len(trials), 4)
        self.assertEqual([trial["value"] for trial in trials], sorted(trial["value"] for trial in trials))
        for trial in trials:
            lines = map(json.loads, (self.at / f"speed/trial-{trial['trial']:04}/metrics.jsonl").read_text().splitlines())
            phases = "data", "forward", "backward", "comm", "optimizer", "other"
            seconds = sorted([sum(line[phase] for phase in phases) for line in lines if "samples_per_s" in line][15:])
            self.assertAlmostEqual(trial["value"], seconds[7], delta=1e-5 * seconds[7])
            weights |= set(re.findall(r"weights: xxh3 (\w+)", (self.at / f"speed/log/trial-{trial['trial']:04}.log").read_text()))
        self.assertEqual(len(weights), 1, weights)

    def test_the_largest_batch_that_fits(self):
        out = self.at / "run"
        trireme("train", self.at / "c.yaml", "-n", "2", "--out", out, "train.batch=auto", "train.epochs=1")
        self.assertRegex((out / "config.yaml").read_text(), r"batch: 512\b")  # of 640 samples
        self.assertIn("train.batch auto", trireme("plan", self.at / "c.yaml", "-n", "1", "train.batch=auto", code=2))
        if has_address_sanitizer():
            self.skipTest("no limit of addresses with AddressSanitizer")
        limited = subprocess.run(["sh", "-c", f"ulimit -v 1500000; exec {TRIREME} train {self.at}/c.yaml --dry-run "
                                  "train.batch=auto data.synthetic_count=4000000 model.hidden='[4096, 4096]'"],
                                 capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, "OMP_NUM_THREADS": "1"})
        found = int(re.search(r"batch: (\d+)", limited.stdout).group(1))
        self.assertTrue(8 <= found < 1 << 18, limited.stdout[:2000])

    def test_optuna_drives(self):
        if not pypi_has("optuna"):
            self.skipTest(f"{PYPI} has no optuna")
        (self.at / "s.yaml").write_text("config: c.yaml\nsteps: 20\nset: {train.eval_every_steps: 5}\n")
        run = subprocess.run([PYPI, EXAMPLES / "tune/optuna_drive.py", self.at / "s.yaml", self.at / "out", "6", TRIREME],
                             capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIn("6 trials, best ", run.stdout)
        self.assertEqual(len(report(self.at / "out")["trials"]), 6)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
