#!/usr/bin/env python3
"""What `trireme k8s` writes: accepted by the schemas of Kubernetes where kubernetes-validate (PyPI) is here, and by those of
JobSet, Kubeflow Trainer, its training operator and MPI operator where TRIREME_CRDS names a folder with their CRDs; the same as
the kustomize base; and pods that are played here, a process each with the environment that its manifest and its operator
give it, end with the weights of one process.

usage: kubernetes.py TRIREME
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

try:
    import yaml
except ImportError:
    yaml = None
try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

from launched import TRIREME

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


def free_port():
    import socket
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


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


def crd_schemas(folder):
    for path in sorted(pathlib.Path(folder).rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document.get("kind") == "CustomResourceDefinition":
                for version in document["spec"]["versions"]:
                    yield (f"{document['spec']['group']}/{version['name']}", document["spec"]["names"]["kind"]), \
                        version["schema"]["openAPIV3Schema"]


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
        self.refuse("k8s.least: want at most k8s.workers, 3, found 4", "values.yaml", "least=4")
        self.refuse("tolerations wants a list", "values.yaml", "tolerations={a: b}")
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
        known = dict(crd_schemas(os.environ["TRIREME_CRDS"])) if os.environ.get("TRIREME_CRDS") else {}
        for kind in KINDS:
            documents = list(yaml.safe_load_all(self.write("values.yaml", "--kind", kind)))
            for document in documents:
                if "." not in document["apiVersion"].split("/")[0]:
                    if kubernetes_validate:
                        kubernetes_validate.validate(document, "1.32", strict=True)
                elif known:
                    import jsonschema
                    schema = strict(known[(document["apiVersion"], document["kind"])])
                    schema["properties"]["metadata"] = {"type": "object"}
                    jsonschema.Draft7Validator(schema).validate(document)
            text = json.dumps(documents)
            for part in ('"key": "spot"', '"claimName": "data"', '"mountPath": "/data"', '"disk": "fast"', "train.steps=60",
                         '"name": "A"', "hidden: [100]", '"secretKeyRef"', '"livenessProbe"'):
                self.assertIn(part, text, kind)

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
            value = "job secret" if "secretKeyRef" in source else str(index) if "fieldRef" in source else item["value"]
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
        done = subprocess.run([TRIREME, "train", "run.yaml", "--out", "alone", *words], cwd=self.path, capture_output=True,
                              text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
        Kubernetes.hashes[words] = re.findall(r"weights: xxh3 (\w+)", done.stdout)[-1]
        return Kubernetes.hashes[words]

    def check(self, pods, *words):
        for pod in pods:
            self.assertEqual(pod.wait(60), 0, self.text())
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
                                 env={**os.environ, "TRIREME_TOKEN": "job secret"}, stderr=subprocess.DEVNULL)
        self.running.append(store)
        container = self.pods_of("elastic")
        container["args"] = [word.replace("=60", "=4000") for word in container["args"]]
        pods = [self.start(container, rank, {}) for rank in (2, 1, 0)]
        log = self.path / "digits" / "metrics.jsonl"
        until = time.monotonic() + 60
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
        self.assertEqual(store.wait(10), 0)

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
        self.assertRegex(text, r"run: last step 10\d s ago, too long")
        self.assertEqual(ask("--within", "200")[0], 0)
        self.assertEqual(ask("--within", "soon")[0], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
