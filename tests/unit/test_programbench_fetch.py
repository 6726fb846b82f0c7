"""Test blobs are downloaded at the pinned revision, for the tasks alone, and without the user's token."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from assize.benchmarks.programbench.official import BLOB_REPOSITORY, BLOB_REVISION
from assize.records import ROOT

FILES = {
    "wanted__task.1/tests/b1.tar.gz": b"blob of the task",
    "other__task.2/tests/b1.tar.gz": b"blob of another",
}
# What the workflow's own verb does, without a study.
SCRIPT = """
import sys
sys.path.insert(0, "scripts")
from pathlib import Path
from assize import cli
from assize.benchmarks.programbench.verbs import download_blobs
cli.run(lambda argv: download_blobs(["wanted__task.1"], Path(argv[0])))
"""


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download of a dataset asks for."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        path = self.path.partition("?")[0]
        base = f"/api/datasets/{BLOB_REPOSITORY}"
        if path == f"{base}/revision/{BLOB_REVISION}":
            self.answer(
                {"id": BLOB_REPOSITORY, "sha": BLOB_REVISION, "siblings": [{"rfilename": name} for name in FILES]}
            )
        elif path.startswith(f"{base}/tree/{BLOB_REVISION}"):
            self.answer([{"type": "file", "path": name, "size": len(FILES[name]), "oid": "0"} for name in FILES])
        elif path.startswith(f"/datasets/{BLOB_REPOSITORY}/resolve/{BLOB_REVISION}/"):
            self.answer(FILES[path.split(f"{BLOB_REVISION}/")[1]])
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def answer(self, content) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", BLOB_REVISION)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def fetch(folder, endpoint: str) -> subprocess.CompletedProcess:
    settings = {"HF_ENDPOINT": endpoint, "HF_TOKEN": "secret", "HF_HOME": str(folder / "home"), "NO_PROXY": "*"}
    command = [sys.executable, "-c", SCRIPT, str(folder / "blobs")]
    return subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True)


def test_the_blobs_of_the_tasks_come_at_the_pin_and_no_token_goes_out(hub, tmp_path):
    done = fetch(tmp_path, f"http://127.0.0.1:{hub.server_port}")
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = tmp_path / "blobs" / "wanted__task.1" / "tests" / "b1.tar.gz"
    assert wanted.read_bytes() == b"blob of the task"
    assert not (tmp_path / "blobs" / "other__task.2").exists()
    assert {token for _, token in hub.asked} == {None}
    datasets = [path for path, _ in hub.asked if BLOB_REPOSITORY in path]
    assert datasets
    assert all(BLOB_REVISION in path for path in datasets)


def test_a_hub_out_of_reach_is_infrastructure(tmp_path):
    done = fetch(tmp_path, "http://127.0.0.1:9")
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"]["code"] == "not_fetched"
