"""Records are strict JSON, checked against their schema, and on disk whole or not at all."""

import os
import resource

import pytest

from assize.errors import UsageError
from assize.records import canonical, digest, read_record, schema_faults, strict_json, write_atomic, write_record

RECEIPT = {
    "schema": "assize.receipt/1",
    "name": "data",
    "sha256": "0" * 64,
    "size": 1,
    "source": {"file": "x"},
    "staged_at": "2026-01-01T00:00:00Z",
}


def test_canonical_form_does_not_depend_on_order():
    assert canonical({"b": 1, "a": "é"}) == '{"a":"é","b":1}'.encode()
    assert digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
    with pytest.raises(ValueError, match="Out of range"):
        canonical({"a": float("nan")})


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": 1, "a": 2}', "[" * 100_000, "{", ""])
def test_json_is_strict(text):
    with pytest.raises(ValueError, match=r"."):
        strict_json(text)


def test_a_record_survives_the_round_trip(tmp_path):
    write_record(tmp_path / "r.json", RECEIPT)
    assert read_record(tmp_path / "r.json", "receipt") == RECEIPT
    assert os.listdir(tmp_path) == ["r.json"]


def test_what_is_no_utf8_can_be_recorded_too(tmp_path):
    """A grader may repeat what a candidate printed: half a surrogate pair must not end the grade."""
    record = RECEIPT | {"name": "half \ud800 whole \U0001f600"}
    write_record(tmp_path / "r.json", record)
    assert read_record(tmp_path / "r.json", "receipt") == record
    assert strict_json(canonical(record).decode()) == record


@pytest.mark.parametrize("change", [{"size": -1}, {"sha256": "x"}, {"extra": 1}, {"schema": "assize.receipt/2"}])
def test_a_record_that_breaks_its_schema_is_not_written(tmp_path, change):
    with pytest.raises(UsageError, match=next(iter(change))):
        write_record(tmp_path / "r.json", RECEIPT | change)
    assert os.listdir(tmp_path) == []


def test_a_record_of_another_kind_or_cut_off_is_refused(tmp_path):
    path = tmp_path / "r.json"
    write_record(path, RECEIPT)
    with pytest.raises(UsageError, match="grade"):
        read_record(path, "grade")
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UsageError, match="not a receipt record"):
        read_record(path, "receipt")
    with pytest.raises(UsageError, match="no such"):
        read_record(tmp_path / "none.json", "receipt")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, b"old")
    if os.fork() == 0:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        try:
            write_atomic(path, b"new" * 100)
        except OSError:
            os._exit(7)
        os._exit(0)
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == 7
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_all_faults_are_named_at_once_with_what_is_allowed():
    faults = schema_faults(
        {"suite": {"path": "x"}, "sandbox": {"lane": "chroot", "limits": {"wall_s": 0}}, "x": 1}, "benchmark-command"
    )
    assert len(faults) == 3
    text = "\n".join(faults)
    assert 'sandbox.lane: "chroot" is not allowed; allowed: bubblewrap, container, subprocess' in text
    assert "sandbox.limits.wall_s: 0 is not allowed" in text
    assert "unknown key x; allowed: calibration, instances, sandbox, suite" in text
