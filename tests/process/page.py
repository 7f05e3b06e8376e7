#!/usr/bin/env python3
"""trireme page and train --page in headless Chromium: what is shown goes on with the run, of hostile names nothing is run,
nobody without the token reads. Skipped where there is no chromium or no library of charts.

usage: page.py TRIREME
"""
import http.client
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
import urllib.parse

from launched import LIMIT_S, TRIREME
from browser import Browser, chromium

CONFIG = """
model: {name: mlp, hidden: [32]}
data: {name: synthetic, synthetic_count: 2000}
train: {batch: 64, shards: 8, epochs: 1000000, eval_every_steps: 1000, threads: 1}
monitor: {ranks_every: 1}
"""
HOSTILE = "<img src=x onerror=document.title='broken'>&\"'"


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        (cls.folder / "run.yaml").write_text(CONFIG)
        cls.train = subprocess.Popen([TRIREME, "train", "run.yaml", "-n", "2", "--out", "live", "--page", "0"], cwd=cls.folder,
                                     text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        cls.url = cls.address(cls.train.stderr)
        hostile = cls.folder / HOSTILE
        (hostile / "ranks").mkdir(parents=True)
        (hostile / "metrics.jsonl").write_text("".join(json.dumps(
            {"step": step, "epoch": 0.1, "loss": 1 / (1 + step), "samples_per_s": 10}, separators=(",", ":")) + "\n" for step in range(5000)))
        (hostile / "ranks/rank-0.jsonl").write_text(json.dumps(
            {"step": 3, "time": 1.8e9, "event": "rollback", "text": HOSTILE}, separators=(",", ":")) + "\n")
        with open(hostile / "metrics.jsonl", "a") as lines:
            lines.write(cls.line(step=4999, event="slow", text="rank 1 is slow", rank=1, cause="disk", share=0.5))
        for rank, waits in ((0, 5.0), (1, 0.0)):
            with open(hostile / f"ranks/rank-{rank}.jsonl", "a") as lines:
                lines.write(cls.line(step=4999, time=1.8e9, generation=0, world=2, steps=10, data=5 - waits, forward=1, backward=1, comm=waits,
                                     optimizer=0, other=0, memory_bytes=1, sent_bytes=0, received_bytes=0))
        (hostile / "ranks/rank-2.jsonl").write_text(cls.line(time=1.8e9, role="server", seconds=5, pushes=50, pulls=10, taken_bytes=10000000,
                                                             served_bytes=5000000, memory_bytes=3000000))
        cls.page = subprocess.Popen([TRIREME, "page", HOSTILE, "live"], cwd=cls.folder, text=True, stdout=subprocess.PIPE)
        cls.both = cls.address(cls.page.stdout)
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        for process in (cls.train, cls.page):
            process.terminate()
            process.communicate(timeout=LIMIT_S)
        cls.temporary.cleanup()

    @staticmethod
    def line(**words):
        return json.dumps(words, separators=(",", ":")) + "\n"

    @staticmethod
    def address(stream):
        while line := stream.readline():
            if found := re.search(r"http://\S+", line):
                return found[0]
        raise AssertionError("no address")

    def open(self, url):
        self.browser.problems.clear()
        self.browser.open(url)
        self.browser.wait_for("document.readyState === 'complete' && performance.getEntriesByName('painted').length > 0")

    def test_a_run_is_seen_going_on(self):
        browser, step = self.browser, "state.runs[0].top.steps_done"
        self.open(self.url)
        before = browser.run(step)
        browser.wait_for(f"{step} > {before} && state.runs[0].ranks.length === 2 && charts.loss.graph.numRows() > 1")
        browser.wait_for("document.querySelectorAll('#ranks tbody tr').length === 2")
        self.assertEqual(browser.run("location.search"), "") # the token is not in the address any more
        browser.run("document.getElementById('loss').focus()")
        browser.key("+")
        browser.wait_for("state.window !== null && charts.loss.graph.xAxisRange()[0] > 0")
        browser.key("0")
        browser.wait_for("state.window === null")
        self.assertEqual(browser.problems, [])

    def test_names_are_text_and_runs_are_compared(self):
        browser = self.browser
        self.open(self.both)
        browser.wait_for("document.querySelectorAll('#runs tbody tr').length === 2 && !document.getElementById('line').hidden")
        self.assertEqual(browser.run("document.title"), HOSTILE)
        self.assertIn(HOSTILE, browser.run("document.querySelector('#line details').textContent"))
        browser.run("document.querySelector('[data-run=checkbox1]').click()")
        browser.wait_for("charts.loss.graph.getLabels().length >= 3")
        browser.run("charts.loss.graph.setSelection(0)")
        self.assertIn(HOSTILE, browser.run("document.querySelector('.dygraph-legend').textContent"))
        self.assertEqual(browser.run("document.querySelectorAll('main img').length"), 0)
        self.assertEqual(browser.problems, [])

    def test_servers_and_why_a_rank_is_waited_for_are_in_the_table(self):
        self.open(self.both)
        self.browser.wait_for("document.querySelectorAll('#ranks tbody tr').length === 3")
        text = self.browser.run("document.getElementById('ranks').textContent")
        self.assertIn("10 pushes/s, 2 pulls/s, 2.00 MB/s in, 1.00 MB/s out", text)
        self.assertIn("the others wait for it: data +500 ms a step; it waited for a disk", text)
        self.assertEqual(self.browser.problems, [])

    def test_a_phone_and_the_dark(self):
        phone = Browser(360, 740, dark=True)
        try:
            phone.open(self.both)
            phone.wait_for("performance.getEntriesByName('painted').length > 0")
            self.assertLessEqual(phone.run("document.documentElement.scrollWidth"), 360)
            self.assertEqual(phone.run("getComputedStyle(document.body).backgroundColor"), "rgb(21, 21, 21)")
            self.assertEqual(phone.problems, [])
        finally:
            phone.close()

    def ask(self, path, host=None, cookie=None):
        at = urllib.parse.urlsplit(self.both)
        line = http.client.HTTPConnection(at.hostname, at.port, timeout=LIMIT_S)
        line.request("GET", path, headers={"Host": host or at.netloc, **({"Cookie": cookie} if cookie else {})})
        answer = line.getresponse()
        text = answer.read()
        line.close()
        return answer.status, text

    def test_who_has_no_token_or_another_name_is_refused(self):
        at = urllib.parse.urlsplit(self.both)
        cookie = f"trireme-{at.port}={at.query.split('=')[1]}"
        self.assertEqual(self.ask("/series?run=0&columns=loss&points=10", cookie=cookie)[0], 200)
        self.assertEqual(self.ask("/series?run=2", cookie=cookie)[0], 404)
        for path, host, given, code in (("/", None, None, 401), ("/watch", None, cookie[:-1], 401), ("/", None, cookie + "0", 401),
                                        ("/?token=" + "0" * 32, None, None, 401), ("/", "evil.example", cookie, 421),
                                        ("/", f"evil.example:{at.port}", cookie, 421), ("/../etc/passwd", None, cookie, 404)):
            self.assertEqual(self.ask(path, host, given)[0], code, (path, host, given))

    def test_a_million_points_are_a_thousand(self):
        at = urllib.parse.urlsplit(self.both)
        cookie = f"trireme-{at.port}={at.query.split('=')[1]}"
        whole = json.loads(self.ask("/series?run=0&columns=loss&points=100", cookie=cookie)[1])
        self.assertEqual((whole["rows"], whole["piece"], len(whole["x"])), (5000, 64, 79))
        self.assertAlmostEqual(whole["loss"][0][0], 1 / 64, 6) # least, mean, greatest of steps 0 to 63
        self.assertAlmostEqual(whole["loss"][0][1], sum(1 / (1 + i) for i in range(64)) / 64, 6)
        self.assertEqual(whole["loss"][0][2], 1)
        part = json.loads(self.ask("/series?run=0&columns=loss&points=100&from=1000&to=1050", cookie=cookie)[1])
        self.assertEqual((part["piece"], part["x"][0], part["x"][-1]), (1, 999, 1050))

    def test_a_file_that_does_not_come_holds_up_no_answer(self):
        slow = self.folder / "slow"
        slow.mkdir()
        (slow / "metrics.jsonl").write_text("".join(self.line(step=step, epoch=0.5, loss=1, samples_per_s=10) for step in range(100)))
        os.mkfifo(slow / "config.yaml") # whoever opens it waits
        with subprocess.Popen([TRIREME, "page", "slow", "--no-token"], cwd=self.folder, text=True, stdout=subprocess.PIPE) as page:
            try:
                at = urllib.parse.urlsplit(self.address(page.stdout))
                config = os.open(slow / "config.yaml", os.O_WRONLY) # the server has it open now, and reads
                for _ in range(3):
                    line = http.client.HTTPConnection(at.hostname, at.port, timeout=LIMIT_S)
                    line.request("GET", "/series?run=0&columns=loss")
                    self.assertEqual(json.loads(line.getresponse().read())["rows"], 100)
                    line.close()
                os.write(config, CONFIG.encode())
                os.close(config)
                line = http.client.HTTPConnection(at.hostname, at.port, timeout=LIMIT_S)
                line.request("GET", "/watch")
                answer = line.getresponse()
                until = time.monotonic() + LIMIT_S
                while b'"steps":' not in (told := answer.readline()):
                    self.assertLess(time.monotonic(), until, told)
                line.close()
            finally:
                page.terminate()
        self.assertEqual(page.returncode, 0)

    def test_one_signal_ends_a_page_that_waits_for_a_file(self):
        stuck = self.folder / "stuck"
        stuck.mkdir()
        (stuck / "metrics.jsonl").write_text(self.line(step=1, epoch=0.5, loss=1))
        os.mkfifo(stuck / "config.yaml")
        with subprocess.Popen([TRIREME, "page", "stuck", "--no-token"], cwd=self.folder, text=True, stdout=subprocess.PIPE) as page:
            self.address(page.stdout)
            config = os.open(stuck / "config.yaml", os.O_WRONLY) # it is read now, and nothing will come
            try:
                page.send_signal(signal.SIGINT)
                self.assertEqual(page.wait(timeout=LIMIT_S), 0)
            finally:
                page.kill()
                os.close(config)

    def test_wrong_words_are_reported(self):
        for words, told in ((["nowhere"], "no such folder"), ([], "want the folders"), (["live", "--token", "short"], "--token: want"),
                            (["live", "--token", "longenough", "--no-token"], "got both"), (["live", "--address", "x"], "want an address")):
            run = subprocess.run([TRIREME, "page", *words], cwd=self.folder, text=True, capture_output=True, timeout=LIMIT_S)
            self.assertEqual((run.returncode, run.stderr.count("error:")), (2, 1), run.stderr)
            self.assertIn(told, run.stderr)


if __name__ == "__main__":
    if not chromium() or not pathlib.Path("/usr/share/javascript/dygraphs/dygraph.min.js").exists():
        print("skipped: no chromium, or no libjs-dygraphs (tools/deps test)")
        sys.exit(77)
    unittest.main()
