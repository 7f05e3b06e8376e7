#!/usr/bin/env python3
"""What a run on cards shows of them, by the fake NVML: /metrics, the page, trireme top: usage: shown.py TRIREME"""
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "process")]
from launched import LIMIT_S, TRIREME  # noqa: E402 (reads and removes the program from sys.argv)
from browser import Browser, chromium  # noqa: E402
from metrics import Run  # noqa: E402
from top import Terminal  # noqa: E402

CONFIG = """
model: {name: mlp, hidden: [16]}
data: {name: synthetic, synthetic_count: 20000}
train: {batch: 40, shards: 8, epochs: 1000000, eval_every: 0, threads: 1, device: cuda}
monitor: {ranks_every: 1}
"""
GIB = 1 << 30
# As fake_nvml.c has them: of the first card, and of the second one where it differs.
FIGURES = {"utilization_ratio": 0.87, "memory_used_bytes": GIB, "memory_total_bytes": 8 * GIB, "power_watts": 412.5, "temperature_celsius": 61,
           "sm_clock_hertz": 1755e6, "memory_clock_hertz": 2619e6, "throttled": 1, "ecc_uncorrected_total": 2, "ecc_uncorrected_lifetime_total": 2,
           "xid_errors_total": 0}
SECOND = {"ecc_uncorrected_total": 0, "ecc_uncorrected_lifetime_total": 0}


class Shown(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="trireme-shown-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        (cls.folder / "run.yaml").write_text(CONFIG)
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ.update(LD_LIBRARY_PATH=str(pathlib.Path(TRIREME).parent / "tests/gpu/fake"), OMP_NUM_THREADS="1", FAKE_CUDA_CARDS="2",
                          FAKE_NVML=f"ecc=2,slow=0x40,xid=63@{cls.folder / 'xid'}")
        cls.run_ = Run(cls.folder, "-n", "2", "--out", "run")
        cls.addClassCleanup(cls.run_.end)
        cls.run_.wait_for(lambda seen: all(f'trireme_gpu_power_watts{{rank="{rank}"}}' in seen for rank in "01"))

    def test_metrics_have_the_figures_of_each_card(self):
        seen = self.run_.figures()
        for rank, figures in (("0", FIGURES), ("1", {**FIGURES, **SECOND})):
            own = {re.match(r"trireme_gpu_(\w+)", name)[1]: value for name, value in seen.items()
                   if name.startswith("trireme_gpu_") and f'rank="{rank}"' in name}
            memory = {name: own.pop(name) for name in ("own_memory_bytes", "own_memory_peak_bytes", "own_memory_planned_bytes")}
            self.assertTrue(0 < memory["own_memory_bytes"] <= memory["own_memory_peak_bytes"] <= memory["own_memory_planned_bytes"], memory)
            self.assertTrue(0 < seen['trireme_mfu_ratio{rank="0"}'] < 1)
            if own.get("last_xid") == 63:  # the test of it came first
                own.update(xid_errors_total=0)
                del own["last_xid"]
            self.assertEqual(own, figures)
        text = self.run_.read()
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        known = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
        asked = set(re.findall(r"trireme_gpu_\w+", (TESTS.parent / "share/grafana/trireme.json").read_text()))
        self.assertGreater(len(asked), 3)
        self.assertEqual(asked - known, set())

    def test_top_has_a_column_of_each(self):
        top = Terminal(str(self.folder / "run"), "--every", "0.2", rows=40, columns=160)
        self.addCleanup(top.close)
        screen = "\n".join(top.shows(r"(?s)  gpu %    gpu mem     W    MHz  ecc .*\n +1  worker .* MiB"))
        for rank, errors in ((0, 2), (1, 0)):
            self.assertRegex(screen, rf"(?m)^ +{rank}  worker .* MiB +87   1024 MiB   412  1755! +{errors} ")
        top.type("q")
        self.assertEqual(top.wait(), 0)

    def page(self):
        page = subprocess.Popen([TRIREME, "page", "run", "--no-token"], cwd=self.folder, text=True, stdout=subprocess.PIPE)
        self.addCleanup(page.communicate)
        self.addCleanup(page.terminate)
        return re.search(r"http://\S+", page.stdout.readline())[0]

    @staticmethod
    def watched(url):
        """What the page says of the run, again and again."""
        line = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=LIMIT_S)
        line.request("GET", "/watch")
        answer, until = line.getresponse(), time.monotonic() + LIMIT_S
        try:
            while (text := answer.readline()) and time.monotonic() < until:
                if text.startswith(b"data: {"):
                    yield json.loads(text[6:])
        finally:
            line.close()

    def test_the_page_has_them_and_an_xid_is_seen(self):
        url, keys = self.page(), ["utilization_ratio", "memory_used_bytes", "power_watts", "sm_clock_hertz", "throttled"]
        for seen in self.watched(url):
            if len(cards := [rank["gpu"] for rank in seen["ranks"]]) == 2:
                break
        for card, errors in zip(cards, (2, 0), strict=True):
            self.assertEqual(card, {**{key: FIGURES[key] for key in keys}, "ecc_uncorrected_total": errors, "xid_errors_total": 0})
        (self.folder / "xid").touch()
        for seen in self.watched(url):
            if sum(rank["gpu"]["xid_errors_total"] for rank in seen["ranks"]) == 1:
                break
        [rank] = [rank["rank"] for rank in seen["ranks"] if rank["gpu"].get("last_xid") == 63]
        self.run_.wait_for(lambda seen: seen.get(f'trireme_gpu_last_xid{{rank="{rank}"}}') == 63)
        if not chromium() or not pathlib.Path("/usr/share/javascript/dygraphs/dygraph.min.js").exists():
            self.skipTest("no chromium, or no libjs-dygraphs (tools/deps test)")
        browser = Browser()
        self.addCleanup(browser.close)
        browser.open(url)
        row = "document.querySelectorAll('#ranks tbody tr')[{}]".format
        browser.wait_for(f"{row(rank)} && {row(rank)}.textContent.includes('Xid 63')")
        texts = [browser.run(f"{row(each)}.lastElementChild.textContent") for each in (0, 1)]
        for each, text in enumerate(texts):
            want = "87 % busy, 1.07 GB, 413 W, 1755 MHz, slowed down" + (", 2 memory errors" if each == 0 else "") + (", Xid 63" if each == rank else "")
            self.assertEqual(text, want)
        self.assertEqual(browser.problems, [])


if __name__ == "__main__":
    unittest.main()
