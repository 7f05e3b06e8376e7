#!/usr/bin/env python3
"""/metrics: figures of all ranks, as promtool and a real Prometheus (Debian's, where it is there) want them; who asks for
something else, too much, or too slowly is refused and holds nobody up.

usage: metrics.py TRIREME
"""
import fcntl
import http.client
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import termios
import threading
import time
import unittest
import urllib.error
import urllib.request

from launched import LIMIT_S, TRIREME

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONFIG = """
model: {name: mlp, hidden: [32]}
data: {name: synthetic, synthetic_count: 1000}
train: {batch: 64, shards: 8, epochs: 1000000, eval_every_steps: 100, threads: 1}
"""


class Run:
    def __init__(self, folder, *words):
        self.process = subprocess.Popen([TRIREME, "train", "run.yaml", "--metrics", "0", *words], cwd=folder, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.text = ""
        while not (found := re.search(r"at https?://127\.0\.0\.1:(\d+)/metrics", self.text)):
            line = self.process.stdout.readline()
            assert line, self.text
            self.text += line
        self.port = int(found[1])

    def read(self, path="/metrics", **words):
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", **words)) as answer:
            return answer.read().decode()

    def figures(self):
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in self.read().splitlines()
                if not line.startswith("#")}

    def wait_for(self, good, limit=LIMIT_S):
        until = time.monotonic() + limit
        while not good(self.figures()):
            assert time.monotonic() < until and self.process.poll() is None, self.read()
            time.sleep(0.05)

    def raw(self, text):
        """What comes back for these bytes, until the other side closes or 30 s have passed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S) as line:
            try:
                line.sendall(text)
                return b"".join(iter(lambda: line.recv(65536), b""))
            except ConnectionError:
                return b""

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.text += self.process.communicate(timeout=LIMIT_S)[0]
        return self.process.returncode


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        (cls.folder / "run.yaml").write_text(CONFIG)
        cls.run_ = Run(cls.folder, "-n", "2", "--out", "two")
        cls.run_.wait_for(lambda seen: sum(k.startswith("trireme_step{") for k in seen) == 2 and
                          'trireme_test_loss{rank="1"}' in seen)

    @classmethod
    def tearDownClass(cls):
        code = cls.run_.end()
        left = list((cls.folder / "two/live").iterdir())
        cls.temporary.cleanup()
        assert code == 128 + signal.SIGTERM and left == [], (code, left, cls.run_.text)

    def test_all_ranks_are_there_and_continue(self):
        before = self.run_.figures()
        self.run_.wait_for(lambda seen: seen['trireme_step{rank="1"}'] > before['trireme_step{rank="1"}'])
        seen = self.run_.figures()
        for rank in "01":
            self.assertEqual(seen[f'trireme_up{{rank="{rank}"}}'], 1)
            self.assertLess(abs(seen[f'trireme_updated_timestamp_seconds{{rank="{rank}"}}'] - time.time()), 60)
            self.assertEqual(seen[f'trireme_steps_total{{rank="{rank}"}}'], seen[f'trireme_step{{rank="{rank}"}}'])
            self.assertGreater(seen[f'trireme_phase_seconds_total{{rank="{rank}",phase="backward"}}'], 0)
        self.assertEqual(seen['trireme_planned_steps{rank="0"}'], 16e6)

    def test_top_shows_where_the_time_of_each_rank_goes(self):
        top = json.loads(subprocess.run([TRIREME, "top", "two", "--once", "--json"], cwd=self.folder, check=True, capture_output=True).stdout)
        self.assertEqual([split["rank"] for split in top["splits"]], [0, 1])
        for split in top["splits"]:
            self.assertGreater(split["steps"], 0)
            self.assertGreater(split["backward"], 0)
        screen, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        shown = subprocess.Popen([TRIREME, "top", "two", "--every", "0.1"], cwd=self.folder, stdout=terminal)
        text, table = "", re.compile(r"step ms wait %.*\n +0 +worker +training +\d+ +[0-9.]+ +\d+ .*\n +1 +worker +training +\d+ .*\n")
        until = time.monotonic() + LIMIT_S
        try:
            while not table.search(text := text.replace("\r", "")[-20000:]):
                self.assertLess(time.monotonic(), until, text[-2000:])
                text += os.read(screen, 65536).decode(errors="replace")
        finally:
            shown.send_signal(signal.SIGINT)
            shown.wait(LIMIT_S)
            os.close(screen)
            os.close(terminal)

    def test_servers_and_their_workers_are_seen(self):
        run = subprocess.Popen([TRIREME, "train", "run.yaml", "-n", "2", "--servers", "1", "--out", "served", "monitor.metrics=gathered"],
                               cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        served = self.folder / "served"
        until, roles = time.monotonic() + LIMIT_S, None
        try:
            while roles != ["worker", "worker", "server"]:
                self.assertLess(time.monotonic(), until, roles)
                top = subprocess.run([TRIREME, "top", "served", "--once", "--json"], cwd=self.folder, capture_output=True, check=False)
                roles = [one["role"] for one in json.loads(top.stdout)["ranks"]] if top.returncode == 0 else None
            figures = served / "live/rank-2"
            while not (figures.exists() and re.search(r"^pushes_total [1-9]", figures.read_text(), re.M)):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.05)
            self.assertIn('role{role="server"} 1', figures.read_text())
            while not (served / "live/rank-1").exists():  # of its first step, whose line it writes before
                self.assertLess(time.monotonic(), until)
                time.sleep(0.05)
            self.assertIn('role{role="worker"} 1', (served / "live/rank-1").read_text())
            first = json.loads((served / "ranks/rank-1.jsonl").read_text().splitlines()[0])
            self.assertEqual((first["world"], first["steps"] > 0), (2, True))
            servers = []
            while not servers or servers[0]["pushes_per_s"] <= 1: # of a second after its start, without monitor.metrics too
                self.assertLess(time.monotonic(), until, servers)
                servers = json.loads(subprocess.run([TRIREME, "top", "served", "--once", "--json"], cwd=self.folder, check=True,
                                                    capture_output=True).stdout)["servers"]
            self.assertEqual([(one["rank"], one["taken_bytes_per_s"] > one["pushes_per_s"]) for one in servers], [(2, True)])
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(LIMIT_S)

    def test_probes_are_answered_by_the_last_step(self):
        for path in ("/healthz", "/readyz", "/readyz?within=100"):
            self.assertIn("last step", self.run_.read(path))
        with self.assertRaises(urllib.error.HTTPError) as refusal:
            self.run_.read("/healthz?within=no")
        self.assertEqual(refusal.exception.code, 400)
        refusal.exception.close()
        lines = self.folder / "two/metrics.jsonl"
        os.utime(lines, (1, 1))
        for path in ("/healthz?within=1", "/readyz?within=1"): # unless a step was written since
            try:
                if lines.stat().st_mtime < 2:
                    self.run_.read(path)
            except urllib.error.HTTPError as answer:
                self.assertEqual(answer.code, 503)
                answer.close()

    def test_promtool_finds_nothing_wrong(self):
        if not shutil.which("promtool"):
            self.skipTest("no promtool (apt-get install prometheus)")
        run = subprocess.run(["promtool", "check", "metrics"], input=self.run_.read(), text=True, capture_output=True)
        self.assertEqual((run.returncode, run.stdout + run.stderr), (0, ""))

    def test_a_real_prometheus_scrapes_it(self):
        if not shutil.which("prometheus"):
            self.skipTest("no prometheus (apt-get install prometheus)")
        (self.folder / "prometheus.yml").write_text(
            "scrape_configs:\n- job_name: trireme\n  scrape_interval: 1s\n  static_configs:\n"
            f"  - targets: ['127.0.0.1:{self.run_.port}']\n")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = subprocess.Popen(["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}",
                                   "--storage.tsdb.path=tsdb"], cwd=self.folder, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        try:
            found, until = [], time.monotonic() + LIMIT_S
            while len(found) < 2 and time.monotonic() < until:
                time.sleep(0.1)
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query=trireme_step") as answer:
                        found = json.load(answer)["data"]["result"]
                except (urllib.error.URLError, ConnectionError):
                    pass
        finally:
            server.terminate()
            server.wait()
        self.assertEqual(sorted(row["metric"]["rank"] for row in found), ["0", "1"])

    def test_the_dashboard_asks_for_what_is_there(self):
        text = (ROOT / "share/grafana/trireme.json").read_text()
        self.assertEqual(len({panel["id"] for panel in json.loads(text)["panels"]}), len(json.loads(text)["panels"]))
        until = time.monotonic() + LIMIT_S
        while "trireme_straggler" not in self.run_.read(): # the first look at who is slow
            self.assertLess(time.monotonic(), until)
            time.sleep(0.1)
        known = {line.split()[2] for line in self.run_.read().splitlines() if line.startswith("# TYPE")}
        asked = set(re.findall(r"trireme_(?!gpu_)\w+", text)) - {"trireme_tokens_per_second"} # no cards here, samples are no sequences
        self.assertEqual(asked - known, set())

    def test_what_is_not_a_request_for_it_is_refused(self):
        for path, words, code in (("/", {}, 404), ("/metrics/../../etc/passwd", {}, 404),
                                  ("/metrics", {"method": "DELETE"}, 405), ("/metrics", {"data": b"x" * 100}, 405)):
            with self.assertRaises(urllib.error.HTTPError) as refusal:
                self.run_.read(path, **words)
            self.assertEqual(refusal.exception.code, code)
            refusal.exception.close()
        self.assertEqual(self.run_.read(method="HEAD"), "")
        for text in (b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100000 + b"\r\n\r\n",
                     b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"):
            self.assertRegex(self.run_.raw(text)[:12], b"HTTP/1.1 4|^$")
        self.assertNotIn(b" 200 ", self.run_.raw(b"\0\xff\x16\x03\x01" * 50 + b"\r\n\r\n"))
        self.assertIn("trireme_up", self.run_.read())

    def test_slow_ones_hold_nobody_up_and_are_sent_away(self):
        slow = [socket.create_connection(("127.0.0.1", self.run_.port)) for _ in range(30)]
        try:
            for line in slow:
                line.sendall(b"GET /met")
            self.assertIn("trireme_up", self.run_.read())
            until, left = time.monotonic() + LIMIT_S, set(slow)
            while left and time.monotonic() < until: # a byte now and then does not keep it
                time.sleep(0.5)
                for line in list(left):
                    try:
                        line.sendall(b"r")
                        line.settimeout(0.001)
                        if line.recv(100) == b"":
                            left.remove(line)
                    except TimeoutError:
                        pass
                    except ConnectionError:
                        left.remove(line)
            self.assertEqual(len(left), 0)
        finally:
            for line in slow:
                line.close()

    def test_a_name_that_leads_here_is_not_asked_by(self):
        """A page of somebody else whose name comes to mean this host (DNS rebinding) has the browser ask by that name."""
        get = "GET /metrics HTTP/1.1\r\n{}Connection: close\r\n\r\n".format
        for host in ("evil.example", f"evil.example:{self.run_.port}", "127.0.0.1.evil.example", "localhost.evil.example", ""):
            self.assertRegex(self.run_.raw(get(f"Host: {host}\r\n").encode())[:12], b"HTTP/1.1 4", host)
        for host in (f"127.0.0.1:{self.run_.port}", "localhost", "[::1]:9100", socket.gethostname()):
            self.assertEqual(self.run_.raw(get(f"Host: {host}\r\n").encode())[:12], b"HTTP/1.1 200", host)
        self.assertEqual(self.run_.raw(b"GET /metrics HTTP/1.0\r\n\r\n")[9:12], b"200")  # no browser
        named = Run(self.folder, "--out", "named", "monitor.http_names=one.example,two.example")
        for host, code in (("one.example", b"200"), ("TWO.example:1", b"200"), ("three.example", b"421"), ("one.example,two.example", b"4")):
            self.assertIn(code, named.raw(get(f"Host: {host}\r\n").encode())[9:12], host)
        named.end()

    def test_many_slow_ones_do_not_lock_out_who_asks(self):
        """Of a page, whose answers may take a minute: each slow one sends a byte now and then."""
        page = subprocess.Popen([TRIREME, "page", "two", "--token", "12345678"], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
        self.addCleanup(page.communicate)
        self.addCleanup(page.terminate)
        url = page.stdout.readline().strip()
        if "libjs-dygraphs" in url:
            self.skipTest(url)
        port = int(re.search(r":(\d+)/", url)[1])
        over, slow = threading.Event(), []

        def crowd():
            while not over.wait(0.2):
                for line in list(slow):
                    try:
                        line.sendall(b"r")
                    except OSError:
                        line.close()
                        slow.remove(line)
                while len(slow) < 80 and not over.is_set():
                    line = socket.create_connection(("127.0.0.1", port))
                    slow.append(line)

        thread = threading.Thread(target=crowd)
        thread.start()
        try:
            while len(slow) < 80:
                time.sleep(0.01)
            for _ in range(5):
                line = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
                line.request("GET", "/", headers={"Cookie": f"trireme-{port}=12345678"})
                self.assertEqual(line.getresponse().status, 200)
                line.close()
        finally:
            over.set()
            thread.join()
            for line in slow:
                line.close()

    def test_it_is_served_by_https(self):
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                               "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
                              cwd=self.folder, capture_output=True, check=False)
        if made.returncode:
            self.skipTest("no openssl")
        words = ("--out", "tls", "monitor.tls_cert=cert.pem", "monitor.tls_key=key.pem")
        run = Run(self.folder, *words)
        url = f"https://127.0.0.1:{run.port}/metrics"
        trusts = ssl.create_default_context(cafile=self.folder / "cert.pem")
        with urllib.request.urlopen(url, context=trusts) as answer:
            self.assertIn("trireme_up", answer.read().decode())
        with self.assertRaises(urllib.error.URLError) as refusal:
            urllib.request.urlopen(url)
        self.assertIn("certificate verify failed", str(refusal.exception))
        self.assertNotIn(b"trireme_up", run.raw(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))
        run.end()
        self.assertIn("at https://127.0.0.1:", run.text)
        for cert, key, says in (("cert.pem", "", "want certificates and their key, got only cert.pem"),
                                ("key.pem", "cert.pem", "key.pem and cert.pem: want certificates and their key (PEM), got: "),
                                ("cert.pem", "none.pem", "none.pem")):
            wrong = subprocess.run([TRIREME, "train", "run.yaml", "--metrics", "0", "--out", "wrong", f"monitor.tls_cert={cert}",
                                    f"monitor.tls_key={key}"], cwd=self.folder, text=True, capture_output=True, timeout=LIMIT_S)
            self.assertEqual(wrong.returncode, 2, wrong.stderr)
            self.assertIn(says, wrong.stderr)

    def test_a_worker_alone_serves_itself(self):
        alone = Run(self.folder, "--out", "alone")
        alone.wait_for(lambda seen: seen.get('trireme_step{rank="0"}', 0) > 3)
        self.assertEqual(alone.figures()['trireme_up{rank="0"}'], 1)
        alone.end()
        self.assertIn("metrics of this worker", alone.text)

    def test_wrong_addresses_are_reported(self):
        for address, words in (("here:9", "want an address"), ("70000", "want an address"), ("::1:80", "want an address"),
                               (f"{self.run_.port}", "another program may be there"), ("8.8.8.8:0", "not of this machine")):
            run = subprocess.run([TRIREME, "train", "run.yaml", "-n", "2", "--out", "wrong", "--metrics", address],
                                 cwd=self.folder, text=True, capture_output=True, timeout=LIMIT_S)
            self.assertEqual(run.stderr.count("error:"), 1)
            self.assertIn(words, run.stderr)
            self.assertIn(run.returncode, (1, 2))


if __name__ == "__main__":
    unittest.main()
