#!/usr/bin/env python3
"""What `trireme k8s` writes: accepted by the schemas of Kubernetes where kubernetes-validate (PyPI) is here, and by those of
JobSet, Kubeflow Trainer, its training operator and MPI operator (tests/data/crds.json, from tools/crds); the same as the kustomize
base; and pods that are played here, a process each with the environment that its manifest and its operator give it, end with
the weights of one process, and say how far they are where Trainer asks.

usage: kubernetes.py TRIREME
"""
import glob
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from launched import LIMIT_S, PYPI, TRIREME
from ports import free_port

sys.path += glob.glob(str(pathlib.Path(PYPI).parents[1] / "lib/python3*/site-packages"))
try:
    import yaml
except ImportError:
    yaml = None
try:
    import jsonschema
except ImportError:
    jsonschema = None
try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

HERE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "kubernetes"
KINDS = ["job", "elastic", "jobset", "trainjob", "pytorchjob", "tfjob", "mpijob"]
CONFIG = """
model: {name: mlp, hidden: [100]}
data: {name: synthetic, synthetic_count: 600, synthetic_width: 32}
train: {batch: 60, epochs: 4000, steps: 300, shards: 8}
optim: {name: adamw, lr: 0.01}
comm: {timeout_s: 60}
"""
VALUES = """
name: digits
workers: 3
threads: 1
port: {port}
config: run.yaml
overrides: ["train.steps=60"]
tolerations: [{{key: spot, operator: Exists}}]
node_selector: {{disk: fast}}
volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}]
mounts: [{{name: data, mountPath: /data, readOnly: true}}]
env: [{{name: A, value: b}}]
"""


def strict(schema):
    """Fields that a schema does not know are mistakes: the API server would drop them."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: strict(value) for key, value in schema.items()}
    if isinstance(out.get("properties"), dict) and "additionalProperties" not in out and \
            not schema.get("x-kubernetes-preserve-unknown-fields"):
        out["additionalProperties"] = False
    if out.pop("x-kubernetes-int-or-string", False):
        out.pop("type", None)
    return out


def crd_schemas():
    found = json.loads((HERE.parents[1] / "tests/data/crds.json").read_text())
    for name, schema in found["kinds"].items():
        schema["properties"]["metadata"] = {"type": "object"}
        yield tuple(name.split()), {**strict(schema), "definitions": strict(found["definitions"])}


class Kubernetes(unittest.TestCase):
    hashes = {}  # of one process, by words

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.temporary.name)
        self.port = free_port()
        (self.path / "run.yaml").write_text(CONFIG)
        (self.path / "values.yaml").write_text(VALUES.format(port=self.port))
        self.running = []

    def tearDown(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.temporary.cleanup()

    def write(self, *words):
        done = subprocess.run([TRIREME, "k8s", *words], cwd=self.path, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refuse(self, says, *words):
        done = subprocess.run([TRIREME, "k8s", *words], cwd=self.path, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn(says, done.stderr)

    def test_what_is_wrong_with_values_is_said(self):
        self.refuse("k8s.kind: want", "values.yaml", "--kind", "daemonset")
        self.refuse("did you mean \"k8s.workers\"", "values.yaml", "worker=3")
        self.refuse("k8s.name: want at most 40 of a-z", "values.yaml", "name=Digits")
        self.refuse("k8s.least: want at most k8s.workers, 3, got 4", "values.yaml", "least=4")
        self.refuse("tolerations needs a list", "values.yaml", "tolerations={a: b}")
        self.refuse("k8s.image: want", "values.yaml", "image=\"a: b\"")
        self.refuse("want a file of values")

    def test_the_base_is_what_is_written(self):
        wanted = self.write(str(HERE / "values.yaml"), "--kind", "elastic")
        self.assertEqual((HERE / "base" / "manifests.yaml").read_text(), wanted)

    @unittest.skipUnless(shutil.which("kubectl"), "no kubectl")
    def test_overlays_are_built(self):
        for overlay in sorted((HERE / "overlays").iterdir()):
            done = subprocess.run(["kubectl", "kustomize", overlay], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("kind: Job", done.stdout)

    @unittest.skipUnless(yaml, "no python3-yaml")
    def test_schemas_accept_every_kind(self):
        known, judged = dict(crd_schemas()), set()
        for kind in KINDS:
            documents = list(yaml.safe_load_all(self.write("values.yaml", "--kind", kind)))
            for document in documents:
                schema = known.get((document["apiVersion"], document["kind"]))
                if "." not in document["apiVersion"].split("/")[0]:
                    if kubernetes_validate:
                        kubernetes_validate.validate(document, "1.32", strict=True)
                elif jsonschema:
                    self.assertIsNotNone(schema, document["kind"])
                    jsonschema.Draft7Validator(schema).validate(document)
                    judged.add(document["kind"])
                    spec = document["spec"]
                    spec["wrong"] = 1
                    with self.assertRaises(jsonschema.ValidationError, msg=kind):
                        jsonschema.Draft7Validator(schema).validate(document)
                    del spec["wrong"]
            text = json.dumps(documents)
            for part in ('"key": "spot"', '"claimName": "data"', '"mountPath": "/data"', '"disk": "fast"', "train.steps=60",
                         '"name": "A"', "hidden: [100]", '"secretKeyRef"', '"livenessProbe"'):
                self.assertIn(part, text, kind)
        self.assertEqual(judged, {kind for _, kind in known} if jsonschema else set())

    @unittest.skipUnless(yaml, "no python3-yaml")
    def test_with_a_port_readiness_is_asked_over_http(self):
        text = self.write("values.yaml", "--kind", "job", "metrics_port=9100")
        pod = [one for one in yaml.safe_load_all(text) if one["kind"] == "Job"][0]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(pod["readinessProbe"]["httpGet"], {"path": "/readyz?within=600", "port": 9100})
        self.assertIn("monitor.metrics=0.0.0.0:9100", pod["args"])
        self.assertIn({"name": "metrics", "containerPort": 9100}, pod["ports"])

    # --- pods ---

    def pods_of(self, kind, role=None):
        """Containers of the workers, as the manifest has them."""
        for document in yaml.safe_load_all(self.write("values.yaml", "--kind", kind)):
            text = json.dumps(document)
            if '"livenessProbe": {"exec"' in text:
                found = []

                def look(node):
                    if isinstance(node, dict):
                        if "containers" in node:
                            found.append(node["containers"][0])
                        for child in node.values():
                            look(child)
                    elif isinstance(node, list):
                        for child in node:
                            look(child)
                look(document)
                return found[0]
        self.fail("no worker in " + kind)

    def start(self, container, index, further):
        """One pod; names of hosts are this machine, volumes are folders."""
        variables = {"OMP_NUM_THREADS": "1"}
        for item in container["env"]:
            source = item.get("valueFrom", {})
            value = "a secret of this job" if "secretKeyRef" in source else str(index) if "fieldRef" in source else item["value"]
            variables[item["name"]] = re.sub(r"digits-[a-z0-9.-]*digits|digits-store", "127.0.0.1", value)
        variables.update(further)
        words = [str(word).replace("/etc/trireme/", "").replace("/runs/", "") for word in container["args"]]
        log = open(self.path / f"pod-{index}.log", "ab")
        base = {name: value for name, value in os.environ.items() if not name.startswith(("TRIREME", "RANK", "WORLD"))}
        self.running.append(subprocess.Popen([TRIREME, *words], cwd=self.path, stdout=log, stderr=log, env={**base, **variables}))
        log.close()
        return self.running[-1]

    def text(self):
        return "".join(path.read_text() for path in sorted(self.path.glob("pod-*.log")))

    def alone(self, *words):
        if words in Kubernetes.hashes:
            return Kubernetes.hashes[words]
        done = subprocess.run([TRIREME, "train", "run.yaml", "--out", "alone", "--overwrite", *words], cwd=self.path, capture_output=True,
                              text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
        Kubernetes.hashes[words] = re.findall(r"weights: xxh3 (\w+)", done.stdout)[-1]
        return Kubernetes.hashes[words]

    def check(self, pods, *words):
        for pod in pods:
            self.assertEqual(pod.wait(LIMIT_S), 0, self.text())
        self.assertEqual(re.findall(r"weights: xxh3 (\w+)", self.text())[-1], self.alone(*words), self.text())

    @unittest.skipUnless(yaml, "no python3-yaml")
    def test_pods_of_every_kind_find_each_other_in_any_order(self):
        hosts = "127.0.0.1 slots=1\npod-1.digits slots=1\npod-2.digits slots=1\n"
        (self.path / "hosts").write_text(hosts)
        cluster = {"chief": [f"127.0.0.1:{self.port}"], "worker": ["pod-1:2222", "pod-2:2222"]}
        operators = {
            "job": lambda rank: {},
            "trainjob": lambda rank: {"PET_NNODES": "3", "PET_NODE_RANK": str(rank), "PET_NPROC_PER_NODE": "1",
                                      "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(self.port)},
            "tfjob": lambda rank: {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {
                "type": "worker" if rank else "chief", "index": max(0, rank - 1)}})},
            "mpijob": lambda rank: {"TRIREME_HOSTFILE": "hosts", "TRIREME_HOST": f"pod-{rank}" if rank else "127.0.0.1"},
        }
        for kind, operator in operators.items():
            with self.subTest(kind):
                shutil.rmtree(self.path / "digits", ignore_errors=True)
                container = self.pods_of(kind)
                pods = [self.start(container, rank, operator(rank)) for rank in (2, 1, 0)]
                self.check(pods, "train.steps=60")

    @unittest.skipUnless(yaml, "no python3-yaml")
    def test_a_pod_that_comes_back_joins_under_its_old_name(self):
        store = subprocess.Popen([TRIREME, "store", "--listen", f"127.0.0.1:{self.port}"],
                                 env={**os.environ, "TRIREME_TOKEN": "a secret of this job"}, stderr=subprocess.DEVNULL)
        self.running.append(store)
        container = self.pods_of("elastic")
        container["args"] = [word.replace("=60", "=4000") for word in container["args"]]
        pods = [self.start(container, rank, {}) for rank in (2, 1, 0)]
        log = self.path / "digits" / "metrics.jsonl"
        until = time.monotonic() + LIMIT_S
        while (not log.exists() or log.read_text().count("\n") < 50) and time.monotonic() < until:
            time.sleep(0.02)
        health = [TRIREME, *container["livenessProbe"]["exec"]["command"][1:]]
        health = [word.replace("/runs/", "") for word in health]
        self.assertEqual(subprocess.run(health, cwd=self.path, stdout=subprocess.DEVNULL, check=False).returncode, 0)
        pods[0].kill()
        pods[0].wait()
        pods[0] = self.start(container, 2, {})
        self.check(pods, "train.steps=4000")
        self.assertRegex(self.text(), r"generation 2: 2 workers|generation 2: 3 workers")
        self.assertRegex(self.text(), r"generation \d+: 3 workers")
        self.assertIn("[worker 2.1] comes back: start 2", self.text())
        store.send_signal(signal.SIGTERM)
        self.assertEqual(store.wait(LIMIT_S), 0)

    # --- progress ---

    def serve(self, token):
        """The controller's end: its answers, and what came, over TLS with a certificate of its own."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=controller", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", self.path / "key.pem",
                        "-out", self.path / "ca.crt"], check=True, stderr=subprocess.DEVNULL)
        came = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                good = self.headers["Authorization"] == f"Bearer {token}" and self.headers["Content-Type"] == "application/json"
                came.append((good, self.path, body))
                self.send_response(200 if good else 403)
                self.end_headers()
                self.wfile.write(json.dumps(body if good else {"message": "Forbidden"}).encode())

            def log_message(self, *words):
                pass
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path / "ca.crt", self.path / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)  # in the thread of each
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server.server_address[1], came

    def report(self, port, *words):
        (self.path / "token").write_text("secret\n")
        base = f"https://127.0.0.1:{port}/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/digits/status"
        names = {"URL": base, "CA_CERT": str(self.path / "ca.crt"), "TOKEN": str(self.path / "token")}
        done = subprocess.run([TRIREME, "train", "run.yaml", "-n", "2", "--out", "told", "--overwrite", "monitor.report_every_s=0.1", *words], cwd=self.path,
                              env={**os.environ, **{f"KUBEFLOW_TRAINER_SERVER_{name}": value for name, value in names.items()}},
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        if "this build has no libcurl" in done.stderr:
            self.skipTest("no libcurl (tools/deps build)")
        return re.findall(r"weights: xxh3 (\w+)", done.stdout)[-1], done.stderr, base.split(str(port))[1]

    def test_progress_is_reported_where_the_controller_asks_for_it(self):
        port, came = self.serve("secret")
        found, _, path = self.report(port)
        self.assertEqual(found, self.alone())
        self.assertGreater(len(came), 0)
        schema = dict(crd_schemas())["trainer.kubeflow.org/v1alpha1", "TrainJob"] if jsonschema and yaml else None
        before = -1
        for good, where, body in came:
            self.assertEqual((good, where), (True, path))
            status = body["trainerStatus"]
            if schema:
                jsonschema.Draft7Validator({**schema["properties"]["status"], "definitions": schema["definitions"]}).validate(body)
            self.assertGreaterEqual(status["progressPercentage"], before)
            before = status["progressPercentage"]
            self.assertRegex(status["lastUpdatedTime"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual((status["progressPercentage"], status["estimatedRemainingSeconds"]), (100, 0))
        metrics = {one["name"]: one["value"] for one in status["metrics"]}
        self.assertEqual(metrics["step"], "300") # one rank of the two tells, to the end
        self.assertGreater(float(metrics["loss"]), 0)

    def test_a_controller_that_refuses_or_is_not_there_is_reported_and_no_failure(self):
        port, came = self.serve("another")
        found, text, _ = self.report(port)
        self.assertEqual(found, self.alone())
        self.assertIn("the progress of this run is not reported: https://127.0.0.1", text)
        self.assertEqual(text.count("want 200, got 403: {\"message\": \"Forbidden\"}"), 1, text)
        self.assertFalse(any(good for good, _, _ in came))
        came.clear()
        self.assertNotIn("is not reported", self.report(port, "monitor.report_every_s=0")[1])
        self.assertEqual(came, [])

    def test_health_is_an_exit_code(self):
        def ask(*words):
            done = subprocess.run([TRIREME, "health", "run", *words], cwd=self.path, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout
        self.assertEqual(ask()[0], 1)
        (self.path / "run").mkdir()
        (self.path / "run" / "metrics.jsonl").write_text("{}\n")
        self.assertEqual(ask()[0], 0)
        os.utime(self.path / "run" / "metrics.jsonl", (time.time() - 100, time.time() - 100))
        code, text = ask("--within", "60")
        self.assertEqual(code, 1)
        self.assertRegex(text, r"run: last step 1\d\d s ago, too long")
        self.assertEqual(ask("--within", "200")[0], 0)
        self.assertEqual(ask("--within", "soon")[0], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
