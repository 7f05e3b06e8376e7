#!/usr/bin/env python3
"""Event files: each point once, whoever was rank 0; the same distributions in every layout; the weights of a run that
nobody watches; and TensorBoard itself, where it is there, reads every kind of value.

usage: tensorboard.py TRIREME. TensorBoard: a Python that has it in TRIREME_PYPI, else /tmp/trireme-venv/bin/python, as
`python3 -m venv /tmp/trireme-venv && /tmp/trireme-venv/bin/pip install tensorboard` makes it.
"""
import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import event_reader
from launched import LIMIT_S, PYPI, TRIREME, pypi_has, ranks_of
from steps import has_steps

CONFIG = """
model:
  layers: [conv2d: {out: 6, kernel: 3, pad: 1}, relu, flatten, linear: classes]
data: {path: images}
train: {batch: 32, shards: 8, epochs: 1000, steps: 40, eval_every_steps: 20, threads: 1}
optim: {lr: 0.05, momentum: 0.9}
monitor: {tensorboard: true, histogram_every: 10, image_every: 20, notes: "what *this* is for"}
"""
READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util
acc = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0, "images": 0})
acc.Reload()
def plugin(tag):
    return plugin_data_pb2.HParamsPluginData.FromString(acc.SummaryMetadata(tag).plugin_data.content)
start = plugin("_hparams_/session_start_info").session_start_info.hparams
image = acc.Images("filters/conv1.weight")[-1]
rows = tensor_util.make_ndarray(acc.Tensors("weights/conv1.weight")[-1].tensor_proto)
graph = acc.Graph()
print(json.dumps({
    "tags": acc.Tags(), "loss": [[p.step, p.value, p.wall_time] for p in acc.Scalars("train/loss")],
    "notes": tensor_util.make_ndarray(acc.Tensors("run/notes")[0].tensor_proto)[0].decode(),
    "plugins": {tag: acc.SummaryMetadata(tag).plugin_data.plugin_name for tag in acc.Tags()["tensors"]},
    "histogram": rows.tolist(), "image": [image.width, image.height, image.encoded_image_string[:8].hex()],
    "nodes": {node.name: [node.op, list(node.input)] for node in graph.node},
    "lr": start["optim.lr"].number_value, "optim": start["optim.name"].string_value,
    "status": plugin("_hparams_/session_end_info").session_end_info.status,
    "metrics": [m.name.tag for m in plugin("_hparams_/experiment").experiment.metric_infos]}))
"""


def images_write(folder):
    """Stripes of ten slants, with noise."""
    draw = random.Random(7)
    folder.mkdir()
    for name, count in (("train", 320), ("t10k", 64)):
        labels = bytes(draw.randrange(10) for _ in range(count))
        pixels = bytes(min(255, 25 * label * (x + y) % 200 + draw.randrange(50)) for label in labels
                       for y in range(8) for x in range(8))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">iiii", 0x803, count, 8, 8) + pixels)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">ii", 0x801, count) + labels)


class TensorBoard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        images_write(cls.folder / "images")
        (cls.folder / "run.yaml").write_text(CONFIG)
        cls.hash, _ = cls.train("alone")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def train(cls, name, *words, code=0):
        run = subprocess.run([TRIREME, "train", "run.yaml", "--out", name, *words], cwd=cls.folder, text=True,
                             capture_output=True, timeout=LIMIT_S)
        assert run.returncode == code, run.stdout + run.stderr
        found = re.search(r"weights: (.*)", run.stdout)
        return found and found[1], run.stdout + run.stderr

    def points(self, name):
        return event_reader.points(self.folder / name)

    def lines(self, name):
        return [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]

    def assert_each_once(self, name, steps):
        """Each number of metrics.jsonl is a point, once, and nothing else is."""
        found = self.points(name)
        self.assertEqual([step for step, _ in found["train/loss"]], list(range(steps)))
        wanted = {}
        for line in self.lines(name):
            for key, value in line.items():
                if key != "step" and isinstance(value, (int, float)):
                    wanted.setdefault(key, []).append((line["step"], struct.pack("<f", value)))
        numbers = {tag.split("/")[1]: at for tag, at in found.items()
                   if tag.split("/")[0] in ("train", "test", "rate", "time", "checkpoint")}
        self.assertEqual(numbers, wanted)
        for tag, at in found.items():
            self.assertEqual(len(at), len({step for step, _ in at}), f"{tag}: {[step for step, _ in at]}")
        return found

    def test_a_watched_run_has_the_bits_of_one_that_is_not(self):
        self.assertEqual(self.train("unseen", "monitor.tensorboard=false")[0], self.hash)
        self.assertEqual(list((self.folder / "unseen").glob("events*")), [])

    def test_all_of_metrics_and_of_the_model_is_there_once(self):
        found = self.assert_each_once("alone", 40)
        for tag in ("weights/conv1.weight", "gradients/conv1.weight", "gradients/fc1.bias"):
            self.assertEqual([step for step, _ in found[tag]], [9, 19, 29, 39], tag)
        for tag in ("filters/conv1.weight", "predictions", "predictions/table"):
            self.assertEqual([step for step, _ in found[tag]], [19, 39], tag)

    def test_every_layout_shows_the_same_distributions_and_pictures(self):
        alone = self.points("alone")
        for name, *words in (("zero3", "-n", "3", "parallel.sync=zero3"), ("zero1", "-n", "2", "parallel.sync=zero1"),
                             ("stages", "-n", "2", "parallel.pipeline=2")):
            self.assertEqual(self.train(name, *words)[0], self.hash)
            found = self.points(name)
            for tag, at in alone.items():
                if tag.split("/")[0] in ("weights", "gradients", "filters", "graph") or (
                        tag.split("/")[0] == "predictions" and name != "stages"):
                    self.assertTrue(at == found.get(tag), f"{name}: {tag}")

    def test_a_run_continues_in_the_same_file_after_a_crash(self):
        self.train("again", "train.steps=27", "checkpoint.every_steps=10")
        for path in sorted((self.folder / "again/checkpoints").glob("step-*"))[1:]: # the run goes back to step 10
            subprocess.run(["rm", "-r", str(path)], check=True)
        file = event_reader.event_file(self.folder / "again")
        file.write_bytes(file.read_bytes()[:-5]) # the last record was not written whole
        self.assertEqual(self.train("again", "--resume", "again")[0], self.hash)
        found = self.assert_each_once("again", 40)
        self.assertEqual([step for step, _ in found["weights/conv1.weight"]], [9, 19, 29, 39])
        self.assertEqual(found["weights/conv1.weight"][1:], self.points("alone")["weights/conv1.weight"][1:])
        self.assertEqual(len(found["_hparams_/session_start_info"]), 1)

    def test_a_run_that_nobody_watched_so_far_shows_all_of_it(self):
        self.train("late", "train.steps=20", "monitor.tensorboard=false")
        self.train("late", "--resume", "late")
        self.assert_each_once("late", 40)

    def test_a_folder_of_its_own_gets_a_folder_for_each_run(self):
        self.train("elsewhere", "monitor.tensorboard=board", "train.steps=12")
        self.assertEqual([p.name for p in (self.folder / "board").iterdir()], ["elsewhere"])
        self.assertIn("train/loss", self.points("board/elsewhere"))

    def test_a_new_rank_0_continues_without_a_gap_or_a_point_twice(self):
        run = subprocess.Popen([TRIREME, "train", "run.yaml", "--out", "elastic", "-n", "3", "--elastic", "2:3", "train.steps=4000",
                                "monitor.histogram_every=100", "monitor.image_every=0"], cwd=self.folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        until = time.monotonic() + LIMIT_S
        while not has_steps(self.folder / "elastic") and time.monotonic() < until:
            time.sleep(0.01)
        victim = ranks_of(run.pid).get(0)
        if victim:
            os.kill(victim, signal.SIGKILL)
        text, _ = run.communicate(timeout=LIMIT_S)
        self.assertEqual(run.returncode, 0, text)
        self.assertTrue(victim and "generation" in text, text)
        self.assert_each_once("elastic", 4000)

    def told_once(self, out, spoil):
        """A run whose file is spoilt says once that TensorBoard gets no more, and trains on."""
        run = subprocess.Popen([TRIREME, "train", "run.yaml", "--out", out, "train.steps=1000000",
                                "train.epochs=1000000"], cwd=self.folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        until = time.monotonic() + LIMIT_S
        while not has_steps(self.folder / out) and time.monotonic() < until:
            time.sleep(0.01)
        spoil(event_reader.event_file(self.folder / out))
        seen = ""
        while "TensorBoard gets no more" not in seen:
            line = run.stdout.readline()
            self.assertTrue(line, seen)
            seen += line
        self.assertIsNone(run.poll())
        run.send_signal(signal.SIGTERM)
        text, _ = run.communicate(timeout=LIMIT_S)
        self.assertEqual(text.count("TensorBoard"), 0, text)
        self.assertIn("stopped by a signal", text)

    def test_a_file_that_cannot_be_written_is_reported_once_and_training_continues(self):
        def spoil(file):
            folder = self.folder / "folder"
            folder.mkdir()
            file.unlink()
            while True: # the run may just have made it anew: a folder in its place, which it cannot write
                try:
                    folder.rename(file)
                    break
                except NotADirectoryError:
                    file.unlink(missing_ok=True)
        self.told_once("lost", spoil)

    def test_a_file_that_is_removed_is_reported_once_and_training_continues(self):
        self.told_once("removed", lambda file: file.unlink())

    def test_tensorboard_reads_every_kind(self):
        if not pypi_has("tensorboard"):
            self.skipTest(f"{PYPI} has no tensorboard")
        run = subprocess.run([PYPI, "-c", READER, str(self.folder / "alone")], text=True, capture_output=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        seen = json.loads(run.stdout)
        lines = [line for line in self.lines("alone") if "loss" in line]
        self.assertEqual([(step, round(value, 5)) for step, value, _ in seen["loss"]],
                         [(line["step"], round(line["loss"], 5)) for line in lines])
        times = [wall for *_, wall in seen["loss"]]
        self.assertTrue(times == sorted(times) and abs(times[-1] - time.time()) < 600, times)
        self.assertEqual(seen["notes"], "what *this* is for")
        self.assertTrue(seen["tags"]["graph"])
        self.assertEqual(seen["nodes"]["conv1"], ["conv2d", ["input"]])
        self.assertEqual(seen["plugins"]["weights/conv1.weight"], "histograms")
        self.assertEqual(seen["plugins"]["run/config"], "text")
        rows = seen["histogram"]
        self.assertEqual(sum(count for *_, count in rows), 54)
        self.assertTrue(all(low < high for low, high, _ in rows) and
                        all(a[1] <= b[0] for a, b in zip(rows, rows[1:])), rows)
        self.assertEqual(seen["image"], [3 * 26 + 2, 2 * 26 + 2, b"\x89PNG\r\n\x1a\n".hex()])
        self.assertEqual((seen["lr"], seen["optim"], seen["status"]), (0.05, "sgd", 1))
        self.assertIn("train/loss", seen["metrics"])


if __name__ == "__main__":
    unittest.main()
