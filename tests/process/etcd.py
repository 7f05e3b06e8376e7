#!/usr/bin/env python3
"""A real etcd as the store of elastic runs: three members, of which one is killed and comes back; users and TLS.

usage: etcd.py TRIREME TEST_STORE   (77: there is no etcd here, or this build has none)
"""
import http.server
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

TEST_STORE = str(pathlib.Path(sys.argv.pop(2)).resolve()) if len(sys.argv) > 2 else "unit_cluster_test_store"

from elastic import Elastic
from launched import LIMIT_S, TRIREME, workers_in
from ports import free_port

STEPS = ("train.steps=5000",)


class Etcd:
    """A cluster on loopback."""

    def __init__(self, folder, count, *words, scheme="http"):
        ports = [free_port() for _ in range(2 * count)]
        self.folder, self.scheme, self.words = pathlib.Path(folder), scheme, words
        self.clients, self.peers = ports[:count], ports[count:]
        self.processes = [self.start(i) for i in range(count)]

    def start(self, i):
        client, peer = f"{self.scheme}://127.0.0.1:{self.clients[i]}", f"http://127.0.0.1:{self.peers[i]}"
        cluster = ",".join(f"m{k}=http://127.0.0.1:{port}" for k, port in enumerate(self.peers))
        return subprocess.Popen(["etcd", "--name", f"m{i}", "--data-dir", self.folder / f"m{i}", "--listen-client-urls", client,
                                 "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                                 "--initial-cluster", cluster, "--heartbeat-interval", "50", "--election-timeout", "500", *self.words],
                                stdout=open(self.folder / f"m{i}.log", "a"), stderr=subprocess.STDOUT)

    def url(self):
        return ("etcds" if self.scheme == "https" else "etcd") + "://" + ",".join(f"127.0.0.1:{port}" for port in self.clients)

    def control(self, *words):
        done = subprocess.run(["etcdctl", "--endpoints", ",".join(f"{self.scheme}://127.0.0.1:{port}" for port in self.clients), *words],
                              env={**os.environ, "ETCDCTL_API": "3"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
        return done.returncode, done.stdout

    def wait(self, *words, limit=LIMIT_S):
        until = time.monotonic() + limit
        while self.control("endpoint", "health", "--cluster", *words)[0] != 0 and time.monotonic() < until:
            time.sleep(0.1)

    def kill(self, i):
        self.processes[i].kill()
        self.processes[i].wait()

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Forgetful(http.server.BaseHTTPRequestHandler):
    """Before a member: every second change of a key is done, and its answer is lost."""
    protocol_version = "HTTP/1.1"
    changes = itertools.count()

    def do_POST(self):
        question = self.rfile.read(int(self.headers["Content-Length"]))
        ask = urllib.request.Request(self.server.member + self.path, question, {"Content-Type": "application/json"})
        with urllib.request.urlopen(ask) as answer:
            lost = self.path.endswith("/txn") and next(self.changes) % 2 == 0
            text = b"" if lost else answer.readline() if self.path.endswith("/watch") else answer.read()
        self.close_connection = lost
        if not lost:
            self.send_response(200)
            self.send_header("Content-Length", len(text))
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, *words):
        pass


class Stores(Elastic):
    def setUp(self):
        super().setUp()
        self.cluster = None

    def tearDown(self):
        super().tearDown()
        if self.cluster:
            self.cluster.end()

    def contract(self, url):
        done = subprocess.run([TEST_STORE], env={**os.environ, "TRIREME_TEST_ETCD": url, "CMOCKA_TEST_FILTER": "etcd*"}, timeout=LIMIT_S,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("SKIPPED", done.stdout)

    def test_members_the_launcher_and_workers_are_killed(self):
        self.cluster = Etcd(self.path, 3)
        self.cluster.wait()
        self.contract(self.cluster.url())
        words = ("-n", "3", "--elastic", "1:8", "--restarts", "9", "--store", self.cluster.url(), *STEPS)
        run = self.start_running("run", *words)
        self.cluster.kill(0)
        os.kill(workers_in(self.path)[1], signal.SIGKILL)
        self.assertTrue(run.wait_for(": resumed, step"), run.text())
        run.process.kill()
        run.end()
        os.kill(workers_in(self.path)[2], signal.SIGKILL)
        self.cluster.processes[0] = self.cluster.start(0)
        again = self.start("run", "--attach", "run")
        self.assertTrue(again.wait_for(": resumed, step"), again.text())
        self.cluster.kill(1)
        self.check(again, *STEPS)
        self.check_tidy()
        self.cluster.processes[1] = self.cluster.start(1)
        last = self.start_running("last", "-n", "2", "--elastic", "1:8", "--store", self.cluster.url())
        self.assertTrue(last.wait_for("weights:"), last.text())
        self.cluster.kill(0)  # the one that its launcher speaks with
        self.check(last)
        self.check_tidy()

    def check_tidy(self):
        self.assertEqual(self.cluster.control("get", "--prefix", "", "--keys-only")[1].strip(), "", "keys are left")

    def test_a_change_whose_answer_is_lost_is_not_made_twice(self):
        self.cluster = Etcd(self.path, 1)
        self.cluster.wait()
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forgetful) as server:
            server.member = f"http://127.0.0.1:{self.cluster.clients[0]}"
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.contract(f"etcd://127.0.0.1:{server.server_port}")
            server.shutdown()
        self.assertGreater(next(Forgetful.changes), 100)

    def refused(self, *words):
        return self.start(f"refused{len(self.running)}", "-n", "2", "--elastic", "1:8", *words)

    def check_refused(self, run, says):
        self.assertNotEqual(run.end(), 0, run.text())
        self.assertIn(says, run.text())

    def test_users_tls_and_what_is_refused(self):
        """Who may still come is waited for, 10 s: that run is begun before the others."""
        waiting = self.refused("--store", "etcd://127.0.0.1:1")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.path / "key", "-out", self.path / "cert",
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (self.path / "auth").write_text("root:first\n")
        (self.path / "wrong").write_text("root:second\n")
        tls = ("--cacert", self.path / "cert")
        self.cluster = Etcd(self.path, 1, "--cert-file", self.path / "cert", "--key-file", self.path / "key", scheme="https")
        self.cluster.wait(*tls)
        url = self.cluster.url()
        for words in (("user", "add", "root:first"), ("user", "grant-role", "root", "root"), ("auth", "enable")):
            code, said = self.cluster.control(*tls, *words)
            self.assertEqual(code, 0, said)
        self.contract(f"{url}?auth={self.path}/auth&ca={self.path}/cert")
        for store, says in (
            (f"{url}?ca={self.path}/cert", "user name is empty"),
            (f"{url}?auth={self.path}/auth", "SSL certificate problem: self-signed certificate (?ca=FILE names who signs its certificate)"),
            (f"{url}?auth={self.path}/wrong&ca={self.path}/cert", "authentication failed"),
            (f"{url}?auth=/nowhere", "there is no such file"),
            (f"{url}?user=me", "got another setting"),
            ("etcd://127.0.0.1", "got a member that is no host:port"),
            ("http://127.0.0.1:1", "want tcp://<host>:<port>, file:///<folder> or etcd://<host>:<port>"),
            ("tcp://127.0.0.1:1", "--store: want etcd[s]://"),
        ):
            self.check_refused(self.refused("--store", store), says)
        self.check_refused(waiting, "Failed to connect")


if __name__ == "__main__":
    with tempfile.NamedTemporaryFile("w") as config:
        config.write("model: {name: mlp}\ndata: {name: synthetic}\n")
        config.flush()
        asked = subprocess.run([TRIREME, "train", config.name, "-n", "1", "--elastic", "1:1", "--out", "/tmp/trireme-no-run", "--store",
                                f"etcd://127.0.0.1:{free_port()}?auth=/nowhere"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if not shutil.which("etcd") or not shutil.which("etcdctl") or "this build has no etcd" in asked.stdout:
        print("skipped: no etcd (tools/deps etcd)")
        raise SystemExit(77)
    names = [name for name in vars(Stores) if name.startswith("test_")]
    suite = unittest.TestSuite(Stores(name) for name in names)
    raise SystemExit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
