#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs of MLflow: its REST interface, of a server that stands in for it and checks what it gets; its file store; and, where
$ACCEL_MLFLOW_PYTHON is an environment with the package, the real server and client.

usage: mlflow_test.py TRACKED_RUN
"""

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

PROGRAM = sys.argv.pop(1)
MLFLOW_PYTHON = os.environ.get("ACCEL_MLFLOW_PYTHON")
LIMIT_S = 60
TOKEN = "secret-token"


class StandIn(http.server.BaseHTTPRequestHandler):
    """One experiment and one run, with the limits that MLflow's server has."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.handle_call(None)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.handle_call(json.loads(body))

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        prefix = "/api/2.0/mlflow-artifacts/artifacts/7/abc/artifacts/"
        if not self.path.startswith(prefix):
            return self.answer(404, {})
        self.server.artifacts[urllib.parse.unquote(self.path[len(prefix):])] = body
        return self.answer(200, {})

    def handle_call(self, content):
        server = self.server
        path, _, query = self.path.partition("?")
        call = path.removeprefix("/api/2.0/mlflow/")
        server.calls.append((call, content, urllib.parse.parse_qs(query)))
        if self.headers.get("Authorization") != server.authorization:
            return self.answer(401, {"error_code": "PERMISSION_DENIED"})
        if call == "runs/log-batch" and server.failures > 0:
            server.failures -= 1
            return self.answer(503, {})
        run = {"run": {"info": {"run_id": "abc", "experiment_id": "7",
                                "artifact_uri": "mlflow-artifacts:/7/abc/artifacts"}}}
        if call == "experiments/get-by-name":
            return self.answer(*((200, {"experiment": {"experiment_id": "7"}}) if server.has_experiment
                                 else (404, {"error_code": "RESOURCE_DOES_NOT_EXIST"})))
        if call == "experiments/create":
            server.has_experiment = True
            return self.answer(200, {"experiment_id": "7"})
        if call in ("runs/create", "runs/get"):
            return self.answer(200, run)
        if call == "runs/update":
            server.status = content["status"]
            return self.answer(200, run)
        if call == "runs/log-batch":
            counts = [len(content.get(kind, [])) for kind in ("metrics", "params", "tags")]
            if counts[0] > 1000 or counts[1] > 100 or counts[2] > 100 or sum(counts) > 1000:
                return self.answer(400, {"error_code": "INVALID_PARAMETER_VALUE"})
            server.metrics += content.get("metrics", [])
            server.params |= {each["key"]: each["value"] for each in content.get("params", [])}
            return self.answer(200, {})
        return self.answer(404, {"error_code": "ENDPOINT_NOT_FOUND"})


def stand_in():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    server.daemon_threads = True
    server.calls, server.metrics, server.params, server.artifacts = [], [], {}, {}
    server.has_experiment, server.failures, server.status, server.authorization = False, 0, None, None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class MlflowCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="accel_mlflow_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_program(self, *words, uri=None, kwargs=None, trackers="mlflow", **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        environment |= variables
        if uri:
            environment["MLFLOW_TRACKING_URI"] = uri
        if kwargs:
            environment["TRACKED_RUN_KWARGS"] = json.dumps({"mlflow": kwargs})
        return subprocess.run([PROGRAM, self.folder, trackers, *map(str, words)], env=environment, text=True,
                              capture_output=True, timeout=LIMIT_S, check=False)

    def assert_done(self, process):
        self.assertEqual((process.returncode, process.stderr), (0, ""))


class ServerTest(MlflowCase):
    def setUp(self):
        super().setUp()
        self.server = stand_in()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.uri = f"http://127.0.0.1:{self.server.server_port}"

    def called(self, name):
        return [(content, query) for call, content, query in self.server.calls if call == name]

    def test_a_run_with_everything(self):
        self.assert_done(self.run_program(0, 1500, "all", uri=self.uri))
        server = self.server
        losses = [each for each in server.metrics if each["key"] == "loss"]
        self.assertEqual([each["step"] for each in losses], list(range(1500)))
        self.assertEqual(losses[1]["value"], 0.5)
        self.assertLess(abs(losses[0]["timestamp"] / 1000 - time.time()), LIMIT_S)
        self.assertEqual({each["key"] for each in server.metrics},
                         {"loss", "train/lr", "eval/accuracy", "flag", "tokens"})
        self.assertEqual(server.params, {"lr": "0.001", "model/layers": "2", "model/tied": "false", "name": "small"})
        self.assertEqual(server.artifacts["images/sample_3.png"][:4], b"\x89PNG")
        self.assertIn(b"<svg", server.artifacts["figures/plot_3.svg"])
        self.assertEqual(json.loads(server.artifacts["tables/answers_3.json"])["columns"], ["question", "score"])
        self.assertEqual(server.status, "FINISHED")
        self.assertEqual(self.called("experiments/get-by-name")[0][1], {"experiment_name": ["run"]})
        self.assertEqual(self.called("experiments/create")[0][0]["name"], "run")
        created = self.called("runs/create")[0][0]
        self.assertEqual((created["experiment_id"], created["run_name"]), ("7", "run"))

    def test_variables_come_before_arguments(self):
        self.server.has_experiment = True
        self.server.authorization = "Bearer " + TOKEN
        self.assert_done(self.run_program(
            0, 1, uri=self.uri + "/", kwargs={"experiment_name": "argument", "tags": {"a": "1"}, "run_name": "mine",
                                              "description": "words"},
            MLFLOW_EXPERIMENT_NAME="variable & more", MLFLOW_TAGS='{"b": "2"}', MLFLOW_TRACKING_TOKEN=TOKEN))
        self.assertEqual(self.called("experiments/get-by-name")[0][1], {"experiment_name": ["variable & more"]})
        created = self.called("runs/create")[0][0]
        tags = {each["key"]: each["value"] for each in created["tags"]}
        self.assertEqual(tags["b"], "2")
        self.assertNotIn("a", tags)
        self.assertEqual(tags["mlflow.note.content"], "words")
        self.assertEqual(created["run_name"], "mine")

    def test_names_and_passwords(self):
        self.server.has_experiment = True
        self.server.authorization = "Basic dXNlcjpwYXNz"  # user:pass
        self.assert_done(self.run_program(0, 1, uri=self.uri, MLFLOW_TRACKING_USERNAME="user",
                                          MLFLOW_TRACKING_PASSWORD="pass"))
        self.assert_done(self.run_program(0, 1, uri=self.uri.replace("//", "//user:pass@")))
        refused = self.run_program(0, 1, uri=self.uri.replace("//", "//user:wrong@"))
        self.assertEqual(refused.returncode, 1)
        self.assertIn("answered 401", refused.stderr)
        self.assertNotIn("wrong", refused.stderr)

    def test_a_run_goes_on(self):
        self.assert_done(self.run_program(5, 6, uri=self.uri, kwargs={"run_id": "abc"}))
        self.assertEqual(self.called("runs/get")[0][1], {"run_id": ["abc"]})
        self.assertEqual(self.called("runs/create"), [])
        self.assertEqual([content["status"] for content, _ in self.called("runs/update")], ["RUNNING", "FINISHED"])
        self.assertEqual([each["step"] for each in self.server.metrics if each["key"] == "loss"], [5])

    def test_values_wait_for_a_server_that_is_busy(self):
        self.server.failures = 3
        process = self.run_program(0, 300, "slow", uri=self.uri)
        self.assertEqual(process.returncode, 0)
        self.assertIn("answered 503", process.stderr)  # accel_log() says so, and the values are kept
        steps = [each["step"] for each in self.server.metrics if each["key"] == "loss"]
        self.assertEqual(steps, list(range(300)))

    def test_without_a_server_the_others_go_on(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        self.assert_done(self.run_program(0, 3, uri=f"http://127.0.0.1:{port}", trackers="mlflow,jsonl"))
        with open(os.path.join(self.folder, "run", "metrics.jsonl"), encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 1 + 1 + 3 + 1)

    def test_bad_settings_are_named(self):
        for uri, words in {"databricks://x": "'databricks://x'; expected http://"}.items():
            process = self.run_program(0, 1, uri=uri)
            self.assertEqual(process.returncode, 1)
            self.assertIn(words, process.stderr)
        process = self.run_program(0, 1, uri=self.uri, kwargs={"speed": 1})
        self.assertIn("'speed' for tracker 'mlflow'", process.stderr)


class FolderTest(MlflowCase):
    def test_the_files_of_a_run(self):
        self.assert_done(self.run_program(0, 3, "all"))
        self.assert_done(self.run_program(3, 5))
        root = os.path.join(self.folder, "mlruns")
        (experiment,) = os.listdir(root)
        runs = [name for name in os.listdir(os.path.join(root, experiment)) if name != "meta.yaml"]
        self.assertEqual(len(runs), 2)
        counts = []
        for run in runs:
            folder = os.path.join(root, experiment, run)
            with open(os.path.join(folder, "metrics", "train", "lr"), encoding="utf-8") as file:
                rows = [line.split() for line in file]
            counts.append(len(rows))
            self.assertEqual([float(row[1]) for row in rows], [0.001 * int(row[2]) for row in rows])
            with open(os.path.join(folder, "params", "model", "layers"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "2")
            with open(os.path.join(folder, "meta.yaml"), encoding="utf-8") as file:
                self.assertIn("\nstatus: 3\n", file.read())
            if len(rows) == 3:
                self.assertTrue(os.path.exists(os.path.join(folder, "artifacts", "images", "sample_3.png")))
        self.assertEqual(sorted(counts), [2, 3])
        process = self.run_program(5, 7, MLFLOW_RUN_ID=runs[0])
        self.assert_done(process)
        self.assertEqual(len(os.listdir(os.path.join(root, experiment))), 3)
        missing = self.run_program(5, 7, MLFLOW_RUN_ID="0" * 32)
        self.assertEqual(missing.returncode, 1)
        self.assertIn("there is no run", missing.stderr)
        outside = self.run_program(5, 7, MLFLOW_RUN_ID="../../x")
        self.assertIn("expected that of a run", outside.stderr)


READ_BACK = """
import json, sys, mlflow
client = mlflow.MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name("run")
(run,) = client.search_runs([experiment.experiment_id])
print(json.dumps({
    "loss": [[m.step, m.value] for m in client.get_metric_history(run.info.run_id, "loss")],
    "metrics": sorted(run.data.metrics), "params": run.data.params, "status": run.info.status, "name": run.info.run_name,
    "artifacts": sorted(f.path for f in client.list_artifacts(run.info.run_id, "images")),
    "figures": sorted(f.path for f in client.list_artifacts(run.info.run_id, "figures"))}))
"""


@unittest.skipUnless(MLFLOW_PYTHON, "set ACCEL_MLFLOW_PYTHON to a Python with mlflow")
class RealMlflowTest(MlflowCase):
    def assert_read_back(self, uri, folder=None):
        environment = dict(os.environ, MLFLOW_ALLOW_FILE_STORE="true", GIT_PYTHON_REFRESH="quiet")
        process = subprocess.run([MLFLOW_PYTHON, "-c", READ_BACK, uri], env=environment, text=True, capture_output=True,
                                 check=False)
        self.assertEqual(process.returncode, 0, process.stderr)
        found = json.loads(process.stdout)
        self.assertEqual(found["loss"], [[step, 1 / (step + 1)] for step in range(1200)])
        self.assertEqual(found["metrics"], ["eval/accuracy", "flag", "loss", "tokens", "train/lr"])
        self.assertEqual(found["params"], {"lr": "0.001", "model/layers": "2", "model/tied": "false", "name": "small"})
        self.assertEqual((found["status"], found["name"]), ("FINISHED", "run"))
        self.assertEqual(found["artifacts"], ["images/sample_3.png"])
        self.assertEqual(found["figures"], ["figures/plot_3.svg"])

    def test_the_file_store(self):
        self.assert_done(self.run_program(0, 1200, "all"))
        self.assert_read_back("file://" + os.path.join(self.folder, "mlruns"))

    def test_the_server(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        uri = f"http://127.0.0.1:{port}"
        command = [MLFLOW_PYTHON, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
                   "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db",
                   "--artifacts-destination", os.path.join(self.folder, "kept")]
        server = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  start_new_session=True)
        self.addCleanup(server.wait)
        self.addCleanup(os.killpg, server.pid, signal.SIGKILL)
        deadline = time.monotonic() + 2 * LIMIT_S
        while True:
            try:
                urllib.request.urlopen(uri + "/health", timeout=1).close()
                break
            except (urllib.error.URLError, OSError):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.2)
        self.assert_done(self.run_program(0, 1200, "all", uri=uri))
        self.assert_read_back(uri)


if __name__ == "__main__":
    unittest.main()
