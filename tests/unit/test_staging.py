"""Staging against real files, a real web server that misbehaves on request, and a real package index."""

import gzip
import hashlib
import io
import json
import os
import pty
import random
import resource
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from assize import records
from assize.errors import InfrastructureError, UsageError
from assize.staging import download, stage
from assize.staging.download import is_rest, strong_validator
from assize.study import resolve
from conftest import SMALL, wait_for

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "stage.py"
BYTES = random.Random(0).randbytes(1_000_000)
OTHER_BYTES = random.Random(1).randbytes(1_000_000)
STARTER = "cbdd7a75d6c45b4e1b96ae51797a4900a8b0408f3d4235612fd23f38d4ea2092"


class Depot(ThreadingHTTPServer):
    """A web server that counts what it serves, and fails as it is told.

    ``faults`` has an entry for each of the next requests: None, ("cut", bytes), ("stall", bytes) or ("status", code).
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), DepotHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.files: dict[str, bytes] = {}
        self.headers = {"ETag": '"one"'}
        self.honours_ranges = True
        self.delay = 0.0
        self.faults: list = []
        self.requests: list[tuple[str, str | None]] = []
        self.served = 0
        self.over = threading.Event()

    def handle_error(self, *_):
        """A client that hangs up is what several tests are about."""


class DepotHandler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        depot = self.server
        asked = self.headers.get("Range")
        depot.requests.append((self.path, asked))
        kind, amount = (depot.faults.pop(0) if depot.faults else None) or ("", 0)
        time.sleep(depot.delay)
        body = depot.files.get(self.path)
        if body is None or kind == "status":
            self.send_error(amount if kind == "status" else 404)
            return
        offset = 0
        fits = self.headers.get("If-Range") in (None, *depot.headers.values())
        if asked and fits and depot.honours_ranges:
            offset = int(asked.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {offset}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        for header in depot.headers.items():
            self.send_header(*header)
        self.send_header("Content-Length", str(len(body) - offset))
        self.end_headers()
        self.send(body[offset : offset + amount] if kind in ("cut", "stall") else body[offset:])
        if kind == "stall":
            depot.over.wait(20)

    def send(self, data):
        for start in range(0, len(data), 10_000):
            self.server.served += self.wfile.write(data[start : start + 10_000])


@pytest.fixture
def depot(monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    server = Depot()
    server.files["/data"] = BYTES
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def short_pauses_and_no_ssh(monkeypatch):
    monkeypatch.setattr(download, "FIRST_PAUSE", 0.01)
    monkeypatch.setenv("ASSIZE_SSH", "false")


@pytest.fixture
def output(tmp_path):
    return tmp_path / "staged" / "data.bin"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def declare(*sources, data=BYTES):
    return {"filename": "data.bin", "sha256": sha256(data), "size": len(data), "sources": list(sources)}


def left_beside(output):
    return sorted(path.name for path in output.parent.iterdir())


def run(*arguments, **options):
    """Run stage.py; its exit status, its one JSON object, its stderr."""
    command = [sys.executable, SCRIPT, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)
    lines = ran.stdout.splitlines()
    assert len(lines) == 1, ran
    return ran.returncode, json.loads(lines[0]), ran.stderr


def written(path, value):
    path.write_text(json.dumps(value))
    return path


def study_with(datasets) -> dict:
    """A frozen study that declares them."""
    return resolve(SMALL, "small.yaml", "none") | {"datasets": datasets}


# What ends up in place


def test_a_staged_file_is_whole_and_read_only_with_a_receipt_and_no_leftovers(tmp_path, output):
    (tmp_path / "here").write_bytes(BYTES)
    source = {"file": str(tmp_path / "here")}
    receipt = stage(declare(source), "data", output)
    assert output.read_bytes() == BYTES
    assert output.stat().st_mode & 0o777 == 0o444
    assert receipt == records.read_record(f"{output}.json", "receipt")
    expected = {"schema": "assize.receipt/1", "name": "data", "sha256": sha256(BYTES), "size": len(BYTES)}
    assert {**receipt, "staged_at": ""} == {**expected, "source": source, "staged_at": ""}
    assert left_beside(output) == ["data.bin", "data.bin.json", "data.bin.lock"]


def test_an_empty_file_is_a_dataset_too(tmp_path, output, depot):
    depot.files["/empty"] = b""
    stage(declare({"url": f"{depot.url}/empty"}, data=b""), "data", output)
    assert output.read_bytes() == b""


def test_the_first_source_with_the_right_bytes_wins_and_each_failure_is_one_line(tmp_path, output, depot, capsys):
    (tmp_path / "wrong").write_bytes(OTHER_BYTES)
    winner = {"url": f"{depot.url}/data"}
    failing = [
        {"file": str(tmp_path / "missing")},
        {"file": str(tmp_path)},
        {"file": str(tmp_path / "wrong")},
        {"url": f"{depot.url}/missing"},
        {"ssh": "nowhere", "path": "/data"},
    ]
    receipt = stage(declare(*failing, winner, {"file": "/never/reached"}), "data", output)
    assert receipt["source"] == winner
    assert output.read_bytes() == BYTES
    logged = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("data.bin: ") and "%" not in line
    ]
    reasons = ("No such file", "not a regular file", "got sha256", "HTTP 404", "exit status 1")
    assert len(logged) == len(failing)
    assert all(reason in line for reason, line in zip(reasons, logged, strict=True))


def test_no_right_source_names_them_all_and_leaves_nothing(tmp_path, output, depot):
    (tmp_path / "wrong").write_bytes(OTHER_BYTES[:-1])
    sources = [{"file": str(tmp_path / "wrong")}, {"url": f"{depot.url}/missing"}, {"file": "/missing"}]
    with pytest.raises(InfrastructureError) as caught:
        stage(declare(*sources), "data", output)
    wrong, missing_url, missing_file = caught.value.message.splitlines()[1:]
    got, expected = f"got sha256 {sha256(OTHER_BYTES[:-1])}, 999999 bytes", f"sha256 {sha256(BYTES)}, 1000000 bytes"
    assert wrong == f"  file {tmp_path}/wrong: {got}; expected {expected}"
    assert missing_url == f"  url {depot.url}/missing: HTTP 404 Not Found"
    assert missing_file == "  file /missing: No such file or directory"
    assert left_beside(output) == ["data.bin.lock"]


def test_a_download_with_the_wrong_bytes_leaves_nothing(output, depot):
    depot.files["/data"] = OTHER_BYTES
    with pytest.raises(InfrastructureError, match=sha256(OTHER_BYTES)):
        stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert left_beside(output) == ["data.bin.lock"]


def test_a_right_file_in_place_is_not_fetched_again(output, depot):
    declaration = declare({"url": f"{depot.url}/data"})
    first = stage(declaration, "data", output)
    assert stage(declaration, "data", output) == first
    assert len(depot.requests) == 1


def test_a_missing_receipt_of_a_right_file_in_place_is_written(output, depot):
    output.parent.mkdir()
    output.write_bytes(BYTES)
    receipt = stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert receipt["source"] == {"in_place": True}
    assert receipt == records.read_record(f"{output}.json", "receipt")
    assert depot.requests == []


def test_a_corrupted_file_in_place_is_replaced(output, depot):
    declaration = declare({"url": f"{depot.url}/data"})
    stage(declaration, "data", output)
    output.chmod(0o644)
    output.write_bytes(BYTES[:-1] + b"?")
    stage(declaration, "data", output)
    assert output.read_bytes() == BYTES
    assert output.stat().st_mode & 0o777 == 0o444


def test_a_corrupted_file_in_place_stays_until_a_right_one_is_here(output):
    output.parent.mkdir()
    output.write_bytes(OTHER_BYTES)
    with pytest.raises(InfrastructureError):
        stage(declare({"file": "/missing"}), "data", output)
    assert output.read_bytes() == OTHER_BYTES


def test_what_other_sources_left_half_done_goes_when_one_succeeds(tmp_path, output):
    (tmp_path / "here").write_bytes(BYTES)
    output.parent.mkdir()
    for name in (".data.bin.part", ".data.bin.archive.part"):
        (output.parent / name).write_bytes(BYTES[:1000])
        written(output.parent / f"{name}.json", {"url": "http://elsewhere.invalid/", "validator": '"one"'})
    stage(declare({"file": str(tmp_path / "here")}), "data", output)
    assert left_beside(output) == ["data.bin", "data.bin.json", "data.bin.lock"]


def test_a_full_disk_is_found_before_anything_is_fetched(output, depot):
    declaration = {**declare({"url": f"{depot.url}/data"}), "size": 1 << 60}
    with pytest.raises(InfrastructureError, match=r"1,152,921,504,606,846,976 bytes are needed, [\d,]+ bytes are free"):
        stage(declaration, "data", output)
    assert depot.requests == []


def test_a_disk_that_fills_up_on_the_way_is_infrastructure_and_leaves_nothing(tmp_path, output):
    (tmp_path / "here").write_bytes(BYTES)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, limits[1]))
    try:
        with pytest.raises(InfrastructureError, match="File too large"):
            stage(declare({"file": str(tmp_path / "here")}), "data", output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert left_beside(output) == ["data.bin.lock"]


def test_four_processes_share_one_download(tmp_path, output, depot):
    depot.delay = 1.0
    declaration = written(tmp_path / "data.json", declare({"url": f"{depot.url}/data"}))
    command = ("get", "--declaration", declaration, "--dataset", "data", "--output", output)
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda _: run(*command), range(4)))
    assert [status for status, _, _ in results] == [0] * 4
    assert all(result == results[0][1] for _, result, _ in results)
    assert len(depot.requests) == 1
    assert any(f"waiting for {output}.lock" in log for _, _, log in results)
    assert output.read_bytes() == BYTES


# Downloads that go wrong


def test_a_cut_download_is_continued(output, depot):
    depot.faults = [("cut", 400_000)]
    stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert output.read_bytes() == BYTES
    (_, whole), (_, rest) = depot.requests
    kept = int(rest.removeprefix("bytes=").removesuffix("-"))
    assert whole is None
    assert 400_000 - download.CHUNK <= kept <= 400_000
    assert depot.served == 400_000 + len(BYTES) - kept


def start_and_kill(depot, tmp_path, output, kept):
    """Stage until ``kept`` bytes are on disk, then kill the process as a node that goes down would."""
    depot.faults = [("stall", kept)]
    declaration = written(tmp_path / "data.json", declare({"url": f"{depot.url}/data"}))
    command = ["get", "--declaration", declaration, "--dataset", "data", "--output", output]
    process = subprocess.Popen([sys.executable, SCRIPT, *command], stderr=subprocess.DEVNULL)
    part = output.with_name(".data.bin.part")
    deadline = time.monotonic() + 20
    while not (part.exists() and part.stat().st_size > kept - download.CHUNK):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    return part.stat().st_size


def test_a_killed_download_is_continued_by_the_next_process(tmp_path, output, depot):
    kept = start_and_kill(depot, tmp_path, output, 600_000)
    assert json.loads(output.with_name(".data.bin.part.json").read_text())["url"] == f"{depot.url}/data"
    stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert output.read_bytes() == BYTES
    assert depot.requests == [("/data", None), ("/data", f"bytes={kept}-")]
    assert depot.served == 600_000 + len(BYTES) - kept
    assert left_beside(output) == ["data.bin", "data.bin.json", "data.bin.lock"]


def keep(output, data, url, validator='"one"'):
    """Lay down what a killed download leaves."""
    output.parent.mkdir(exist_ok=True)
    output.with_name(".data.bin.part").write_bytes(data)
    written(output.with_name(".data.bin.part.json"), {"url": url, "validator": validator})


def test_a_changed_etag_restarts(output, depot):
    keep(output, OTHER_BYTES[:500_000], f"{depot.url}/data", validator='"zero"')
    stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert output.read_bytes() == BYTES
    assert depot.requests == [("/data", "bytes=500000-")]
    assert depot.served == len(BYTES)


def test_a_server_without_ranges_restarts(output, depot):
    depot.honours_ranges = False
    depot.faults = [("cut", 400_000)]
    stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert output.read_bytes() == BYTES
    assert depot.served == 400_000 + len(BYTES)


def test_a_server_that_never_gets_further_is_given_up(output, depot):
    depot.honours_ranges = False
    depot.faults = [("cut", 400_000)] * 100
    with pytest.raises(InfrastructureError, match="gave up after 5 attempts"):
        stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert len(depot.requests) == 5


def test_a_server_that_gets_further_each_time_is_not_given_up(output, depot):
    depot.faults = [("cut", 100_000)] * 8
    stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert output.read_bytes() == BYTES


def test_an_unsatisfiable_range_restarts(output, depot):
    keep(output, BYTES[:500_000], f"{depot.url}/data")
    depot.faults = [("status", 416)]
    stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert output.read_bytes() == BYTES
    assert depot.requests == [("/data", "bytes=500000-"), ("/data", None)]


def test_kept_bytes_that_have_rotted_are_not_held_against_the_source(output, depot):
    keep(output, bytes(500_000), f"{depot.url}/data")
    stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert output.read_bytes() == BYTES
    assert depot.requests == [("/data", "bytes=500000-"), ("/data", None)]


def test_bytes_that_were_kept_whole_need_no_request(output, depot):
    keep(output, BYTES, f"{depot.url}/data")
    stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert output.read_bytes() == BYTES
    assert depot.requests == []


def test_bytes_that_were_kept_of_another_url_are_not_continued(output, depot):
    keep(output, BYTES[:500_000], f"{depot.url}/elsewhere")
    stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert output.read_bytes() == BYTES
    assert depot.requests == [("/data", None)]


def test_a_failing_source_does_not_cost_the_bytes_that_were_kept_of_another(output, depot):
    keep(output, BYTES[:500_000], f"{depot.url}/data")
    failing = [{"file": "/missing"}, {"url": f"{depot.url}/missing"}, {"ssh": "nowhere", "path": "/data"}]
    stage(declare(*failing, {"url": f"{depot.url}/data"}), "data", output)
    assert depot.served == 500_000


def test_without_an_etag_or_a_date_nothing_is_kept(output, depot):
    depot.headers = {"ETag": 'W/"weak"'}
    depot.faults = [("cut", 400_000)] * 5
    with pytest.raises(InfrastructureError):
        stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert left_beside(output) == ["data.bin.lock"]


def test_more_bytes_than_declared_are_not_waited_for(output, depot):
    depot.files["/data"] = BYTES * 40
    with pytest.raises(InfrastructureError, match=f"got more than 1000000 bytes; expected sha256 {sha256(BYTES)}"):
        stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert depot.served < len(BYTES) * 40
    assert left_beside(output) == ["data.bin.lock"]


def test_a_silent_server_is_asked_again(monkeypatch, output, depot):
    monkeypatch.setattr(download, "READ_TIMEOUT", 0.3)
    depot.faults = [("stall", 400_000)]
    stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert output.read_bytes() == BYTES
    assert len(depot.requests) == 2


def test_a_busy_server_is_asked_again_but_a_refusal_is_final(output, depot):
    depot.faults = [("status", 503), ("status", 429), ("status", 403)]
    with pytest.raises(InfrastructureError, match="HTTP 403"):
        stage(declare({"url": f"{depot.url}/data"}), "data", output)
    assert len(depot.requests) == 3


def test_an_unreachable_server_is_given_up(output, depot):
    depot.server_close()
    with pytest.raises(InfrastructureError, match=r"refused.*gave up after 5 attempts"):
        stage(declare({"url": f"{depot.url}/data"}), "data", output)


@pytest.mark.parametrize(
    ("headers", "validator"),
    [
        ({"ETag": '"a"', "Last-Modified": "yesterday"}, '"a"'),
        ({"ETag": 'W/"a"', "Last-Modified": "yesterday"}, "yesterday"),
        ({"ETag": 'W/"a"'}, ""),
        ({}, ""),
    ],
)
def test_only_a_strong_validator_may_stand_in_if_range(headers, validator):
    assert strong_validator(headers) == validator


@pytest.mark.parametrize(
    ("headers", "validator", "rest"),
    [
        ({"Content-Range": "bytes 5-9/10", "ETag": '"a"'}, '"a"', True),
        ({"Content-Range": "bytes 5-9/10"}, '"a"', True),
        ({"Content-Range": "bytes 5-9/10"}, "yesterday", True),
        ({"Content-Range": "bytes 5-9/10", "ETag": '"b"'}, '"a"', False),
        ({"Content-Range": "bytes 4-9/10", "ETag": '"a"'}, '"a"', False),
        ({"ETag": '"a"'}, '"a"', False),
        ({"Content-Range": "bytes 5-9/10"}, "", False),
    ],
)
def test_a_206_is_continued_only_where_it_fits(headers, validator, rest):
    assert is_rest(headers, 5, validator) is rest


# Hubs and indexes


def test_a_huggingface_file_is_resolved_at_its_revision(monkeypatch, output, depot):
    monkeypatch.setenv("HF_ENDPOINT", f"{depot.url}/")
    depot.files[f"/datasets/owner/name/resolve/{'a' * 40}/some%20folder/data.bin"] = BYTES
    source = {"huggingface": "owner/name", "revision": "a" * 40, "path": "some folder/data.bin"}
    stage(declare(source), "data", output)
    assert output.read_bytes() == BYTES


def packed_sdist():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("demo-1.0/data.bin")
        member.size = len(BYTES)
        tar.addfile(member, io.BytesIO(BYTES))
        link = tarfile.TarInfo("demo-1.0/link.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "data.bin"
        tar.addfile(link)
    return gzip.compress(packed.getvalue(), mtime=0)


def packed_wheel():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr(zipfile.ZipInfo("demo/data.bin"), BYTES)
        link = zipfile.ZipInfo("demo/link.bin")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        zipped.writestr(link, "data.bin")
    return packed.getvalue()


SDIST, WHEEL = packed_sdist(), packed_wheel()


@pytest.fixture
def index(monkeypatch, depot):
    """A package index with one project, whose page is served as HTML."""
    monkeypatch.setenv("PIP_INDEX_URL", f"{depot.url}/simple")
    depot.headers["Content-Type"] = "text/html"
    names = {"demo-1.0.tar.gz": SDIST, "demo-1.0-py3-none-any.whl": WHEEL, "demo-1.0-py2-none-any.whl": b"old"}
    links = [f'<a href="/files/{name}#sha256={sha256(data)}">{name}</a>' for name, data in names.items()]
    depot.files |= {f"/files/{name}": data for name, data in names.items()}
    depot.files["/simple/demo/"] = "".join(links).encode()
    return depot


def from_index(kind, member, archive, project="demo", version="1.0.0"):
    return {"pypi": project, "version": version, "distribution": kind, "sha256": sha256(archive), "member": member}


@pytest.mark.parametrize(
    ("kind", "member", "archive"),
    [("sdist", "demo-1.0/data.bin", SDIST), ("wheel", "demo/data.bin", WHEEL)],
    ids=["sdist", "wheel"],
)
def test_a_member_is_taken_out_of_the_archive_and_only_the_member_stays(output, index, kind, member, archive):
    index.faults = [None, ("cut", len(archive) // 2)]
    source = from_index(kind, member, archive)
    assert stage(declare(source), "data", output)["source"] == source
    assert output.read_bytes() == BYTES
    assert left_beside(output) == ["data.bin", "data.bin.json", "data.bin.lock"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (from_index("sdist", "demo-1.0/none.bin", SDIST), "demo-1.0.tar.gz has no member demo-1.0/none.bin"),
        (from_index("sdist", "demo-1.0/link.bin", SDIST), "demo-1.0/link.bin is not a regular file"),
        (from_index("wheel", "demo/none.bin", WHEEL), "py3-none-any.whl has no member demo/none.bin"),
        (from_index("wheel", "demo/link.bin", WHEEL), "demo/link.bin is not a regular file"),
        (from_index("wheel", "demo/data.bin", b"old"), "demo-1.0-py2-none-any.whl cannot be read"),
        (from_index("sdist", "demo-1.0/data.bin", b"?"), f"it has: demo-1.0.tar.gz sha256 {sha256(SDIST)}"),
        (from_index("sdist", "demo-1.0/data.bin", SDIST, version="2"), "it has: none"),
        (from_index("sdist", "demo-1.0/data.bin", SDIST, project="other"), "the index has no project other"),
    ],
)
def test_a_member_that_cannot_be_had_says_why_and_leaves_nothing(output, index, source, why):
    with pytest.raises(InfrastructureError) as caught:
        stage(declare(source), "data", output)
    assert why in caught.value.message
    assert left_beside(output) == ["data.bin.lock"]


def test_an_archive_that_is_not_the_one_the_index_promised_is_not_opened(output, index):
    index.files["/files/demo-1.0.tar.gz"] = WHEEL
    with pytest.raises(InfrastructureError, match=f"demo-1.0.tar.gz: got sha256 {sha256(WHEEL)}"):
        stage(declare(from_index("sdist", "demo-1.0/data.bin", SDIST)), "data", output)
    assert left_beside(output) == ["data.bin.lock"]


def test_a_member_of_a_published_sdist(monkeypatch, output):
    # Where the network swallows packets, skipping must not take minutes.
    monkeypatch.setattr(download, "CONNECT_TIMEOUT", 5)
    monkeypatch.setattr(download, "ATTEMPTS", 2)
    source = {
        "pypi": "agent-learning-kit",
        "version": "0.3.3",
        "distribution": "sdist",
        "sha256": "94e3ede388b3858177bb966d7482d1307435f85a3ed3d64d29f19cc9118e039f",
        "member": "agent_learning_kit-0.3.3/examples/bench_suites/coding_command_starter.json",
    }
    declaration = {"filename": "starter.json", "sha256": STARTER, "size": 3548, "sources": [source]}
    try:
        stage(declaration, "starter", output)
    except InfrastructureError as error:
        if "gave up after" in error.message or "the index has no project" in error.message:
            pytest.skip(f"no package index with this project can be reached: {error.message}")
        raise
    assert json.loads(output.read_text())
    assert left_beside(output) == ["data.bin", "data.bin.json", "data.bin.lock"]


# The command


def test_get_from_a_study_prints_the_receipt(tmp_path, output):
    (tmp_path / "here").write_bytes(BYTES)
    study = written(tmp_path / "study.json", study_with({"data": declare({"file": str(tmp_path / "here")})}))
    status, result, log = run("get", "--study", study, "--dataset", "data", "--output", output)
    receipt = records.read_record(f"{output}.json", "receipt")
    assert (status, result) == (0, {"ok": True, "path": str(output), **receipt})
    assert "\x1b" not in log


def test_without_a_terminal_progress_is_plain_lines(tmp_path, output, depot):
    depot.files["/data"] = BYTES * 5
    declaration = written(tmp_path / "data.json", declare({"url": f"{depot.url}/data"}, data=BYTES * 5))
    status, _, log = run("get", "--declaration", declaration, "--dataset", "data", "--output", output)
    lines = [line for line in log.splitlines() if line.startswith("data.bin: ")]
    assert status == 0
    assert 5 <= len(lines) <= 11
    assert lines[-1] == "data.bin: 5,000,000 of 5,000,000 bytes (100%)"
    assert "\x1b" not in log
    assert "\r" not in log


def test_on_a_terminal_progress_is_a_bar_and_stdout_stays_clean(tmp_path, output, depot):
    declaration = written(tmp_path / "data.json", declare({"url": f"{depot.url}/data"}))
    ours, theirs = pty.openpty()
    command = [sys.executable, SCRIPT, "get", "--declaration", declaration, "--dataset", "data", "--output", output]
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}, timeout=60, check=True
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 16)
    os.close(ours)
    assert json.loads(ran.stdout)["ok"]
    assert b"\x1b[" in shown
    assert b"data.bin" in shown


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "bad_usage"),
        (["fetch"], "bad_usage"),
        (["get", "--dataset", "data", "--output", "out"], "bad_usage"),
        (["get", "--study", "s", "--declaration", "d", "--dataset", "data", "--output", "out"], "bad_usage"),
        (["get", "--study", "absent.json", "--dataset", "data", "--output", "out"], "missing_record"),
        (["get", "--study", "torn.json", "--dataset", "data", "--output", "out"], "bad_record"),
        (["get", "--study", "alien.json", "--dataset", "data", "--output", "out"], "bad_record"),
        (["get", "--declaration", "torn.json", "--dataset", "data", "--output", "out"], "bad_record"),
        (["get", "--study", "study.json", "--dataset", "other", "--output", "out"], "unknown_dataset"),
        (["get", "--study", "faulty.json", "--dataset", "data", "--output", "out"], "bad_record"),
        (["get", "--study", "study.json", "--dataset", "data", "--output", "."], "bad_output"),
        (["push", "absent", "host:/path"], "bad_input"),
        (["push", "study.json", "host"], "bad_target"),
        (["push", "study.json", "-oProxyCommand=false:/path"], "bad_usage"),
        (["push", "--", "study.json", "-oProxyCommand=false:/path"], "bad_host"),
        (["push", "study.json", "me@-oProxyCommand=false:/path"], "bad_host"),
    ],
)
def test_bad_usage_is_one_json_object_and_exit_status_2(tmp_path, arguments, code):
    declaration = declare({"file": "/missing"})
    written(tmp_path / "study.json", study_with({"data": declaration}))
    written(tmp_path / "faulty.json", study_with({"data": {**declaration, "size": "big"}}))
    written(tmp_path / "alien.json", {"datasets": {"data": declaration}})
    (tmp_path / "torn.json").write_text('{"datasets"')
    status, result, _ = run(*arguments, cwd=tmp_path)
    assert (status, result["ok"], result["error"]["code"]) == (2, False, code)


def test_at_sigterm_it_ends_as_every_command_does_and_goes_on_later(depot, tmp_path, output):
    depot.faults = [("stall", 500_000)]
    declaration = written(tmp_path / "data.json", declare({"url": f"{depot.url}/data"}))
    command = ["get", "--declaration", declaration, "--dataset", "data", "--output", output]
    process = subprocess.Popen([sys.executable, SCRIPT, *command], stderr=subprocess.DEVNULL)
    part = output.with_name(".data.bin.part")
    wait_for(lambda: part.exists() and part.stat().st_size > 0)
    process.terminate()
    assert process.wait(60) == 143
    assert part.stat().st_size > 0
    status, _, log = run(*command)
    assert status == 0
    assert "continued from byte" in log


def test_no_right_source_is_one_json_object_and_exit_status_3(tmp_path, output):
    declaration = written(tmp_path / "data.json", declare({"file": "/missing"}))
    status, result, _ = run("get", "--declaration", declaration, "--dataset", "data", "--output", output)
    assert (status, result["ok"], result["error"]["code"]) == (3, False, "no_source")


def test_a_folder_that_cannot_be_written_is_infrastructure(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="File exists"):
        stage(declare({"file": "/missing"}), "data", tmp_path / "file" / "data.bin")


def test_a_faulty_declaration_names_the_field(output):
    with pytest.raises(UsageError, match="sources"):
        stage({**declare(), "sources": []}, "data", output)
