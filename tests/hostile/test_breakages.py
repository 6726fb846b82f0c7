"""The known breakages of the peer (protocol of command-graded suites), in each lane that isolates.

Each is an input that another harness judged wrong. What is stated here is the right outcome.
"""

import json
import os
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from assize.benchmarks.command.calibration import calibrate
from assize.benchmarks.command.court import judge_files
from assize.errors import InfrastructureError
from assize.sandbox import open_lane
from conftest import IMAGE, lane_or_skip, make_task

SOLUTION = {"solution.sh": "echo 42\n"}
HOG = "import os, time; x = [os.fork() for _ in range(3)]; y = bytes(1) * (200 << 20); time.sleep(60)"
HONEST = '[ "$(run-candidate sh solution.sh)" = 42 ]\n'


def judge(lane, task, files, limits):
    return judge_files(lane, task, files, limits)[0]


def test_an_honest_grader_tells_right_from_wrong(lane, limits):
    assert judge(lane, make_task(HONEST), SOLUTION, limits)["verdict"] == "pass"
    assert judge(lane, make_task(HONEST), {"solution.sh": "echo 41\n"}, limits)["verdict"] == "fail"


@pytest.mark.parametrize(("score", "flag"), [("1.0", "score_disagrees"), ("1e9", "reward_out_of_range")])
def test_exit_1_is_a_fail_whatever_the_reward_says(lane, limits, score, flag):
    grader = f"""echo '{{"score": {score}}}' > "$GRADER_DIR/reward.json"; exit 1\n"""
    body = judge(lane, make_task(grader), SOLUTION, limits)
    assert (body["verdict"], body["score"], body["valid"]) == ("fail", 0.0, True)
    assert body["flags"] == [flag]


@pytest.mark.parametrize(
    ("write", "flag"),
    [
        ("""echo '{"score": NaN}' > reward""", "reward_unreadable"),
        ("""echo '[1]' > reward""", "reward_malformed"),
        ("""echo 'true' > reward""", "reward_malformed"),
        ("""echo '{"score": true}' > reward""", "reward_malformed"),
        ("""echo '{"score": 1' > reward""", "reward_unreadable"),
        ("""echo '{"score": 1e400}' > reward""", "reward_out_of_range"),
        ("""echo '{"score": -1}' > reward""", "reward_out_of_range"),
        ("""echo '{"score": 1, "score": 0.5}' > reward""", "reward_unreadable"),
        ("""head -c 52428800 /dev/zero > reward""", "reward_too_large"),
        ("""printf '\\377\\376{}' > reward""", "reward_unreadable"),
        ("""ln -s /etc/passwd reward""", "reward_not_regular"),
        ("""ln -s /dev/zero reward""", "reward_not_regular"),
        ("""mkfifo reward""", "reward_not_regular"),
        ("""mkdir reward""", "reward_not_regular"),
    ],
)
def test_a_reward_that_cannot_be_believed_is_ignored_and_flagged(lane, limits, write, flag):
    grader = 'cd "$GRADER_DIR"\n' + write.replace("reward", "reward.json") + "\nexit 0\n"
    body = judge(lane, make_task(grader), SOLUTION, limits)
    assert (body["verdict"], body["score"]) == ("pass", 1.0)
    assert body["flags"] == [flag]


def test_a_partial_score_beside_exit_0_passes_and_is_flagged(lane, limits):
    grader = """echo '{"score": 0.4}' > "$GRADER_DIR/reward.json"\n"""
    body = judge(lane, make_task(grader), SOLUTION, limits)
    assert (body["verdict"], body["score"], body["flags"]) == ("pass", 0.4, ["score_disagrees"])


def test_bytes_that_are_not_utf8_are_graded_normally(lane, limits):
    grader = """printf '\\377\\376\\000'
printf '\\357\\273\\277{"score": 1.0, "checks": {"a": true}}' > "$GRADER_DIR/reward.json"
[ "$(run-candidate sh solution.sh | tail -c 3)" = 42 ]
"""
    files = {"solution.sh": "printf '\\377\\376\\n42\\n'\n"}
    body = judge(lane, make_task(grader), files, limits)
    assert (body["verdict"], body["flags"]) == ("pass", [])
    assert body["checks"] == [{"id": "a", "verdict": "pass", "signature": None}]


@pytest.mark.parametrize("path", ["../../x", "/abs/x", "a/../../x", "", "a\0b"])
def test_a_path_that_leaves_is_rejected_before_any_write(lane, limits, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    body = judge(lane, make_task(HONEST), {**SOLUTION, path: "planted"}, limits)
    assert (body["verdict"], body["scoring_status"]) == ("fail", "submission_rejected")
    assert "path" in body["reason"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        ("ln -s /etc/passwd out", "leads out"),
        ("ln -s ../../x out", "leads out"),
        ("mkdir a && ln -s ../../x a/out", "leads out"),
        ("mkfifo pipe", "a device, a FIFO"),
        ("truncate -s 60M a && cp a b && cp a c && cp a d && cp a e", ""),
        ("mkdir many && cd many && seq 21000 | xargs touch", "more than 20000"),
    ],
)
def test_what_a_build_leaves_is_checked_before_it_is_frozen(lane, limits, build, reason):
    body = judge(lane, make_task(HONEST, build=build), SOLUTION, limits)
    assert body["verdict"] == "fail"
    assert body["scoring_status"] in ("submission_rejected", "build_over_limit")
    assert reason in body["reason"]


@pytest.mark.parametrize("fill", ["head -c 60000000 /dev/zero > $name; sleep 1", "truncate -s 60M $name"])
def test_a_candidate_that_fills_the_disk_while_it_is_graded_fails(limits, fill):
    """In a container, where what is left is brought out as an archive; what is sparse is as long there as it says."""
    files = {"solution.sh": f"for name in a b c d e; do {fill}; done\n"}
    grader = "run-candidate sh solution.sh\n"
    body = judge(lane_or_skip("container"), make_task(grader), files, limits)
    assert (body["verdict"], body["scoring_status"]) == ("fail", "grader_over_limit")
    assert "disk" in body["reason"]


def test_a_hard_link_is_a_file_of_its_own(lane, limits):
    body = judge(lane, make_task(HONEST, build="ln solution.sh again.sh"), SOLUTION, limits)
    assert body["verdict"] == "pass"


def test_a_daemon_of_the_candidate_is_dead_before_the_grader_exists(lane, limits):
    mark = f"assize-daemon-{uuid.uuid4().hex}"
    build = f"""setsid sh -c '(while :; do
  for place in /grader /case/grader "$GRADER_DIR"; do
    [ -d "$place" ] && echo "{{\\"score\\": 1}}" > "$place/reward.json" && : > stolen
  done; sleep 0.05; done; : {mark}) &' </dev/null >/dev/null 2>&1 &"""
    grader = "sleep 0.5; [ ! -e stolen ] || exit 3; exit 1\n"
    body, snapshot = judge_files(lane, make_task(grader, build=build), SOLUTION, limits)
    assert body["verdict"] == "fail"
    assert body["detail"]["grader"]["exit"] == 1
    assert body["flags"] == []
    assert snapshot["survivors"] >= 1
    assert processes_with(mark) == []


def test_a_background_process_that_holds_stdout_does_not_hold_the_build(lane, limits):
    body, snapshot = judge_files(lane, make_task(HONEST, build="sleep 300 &", timeout_s=15), SOLUTION, limits)
    assert body["verdict"] == "pass"
    assert snapshot["detail"]["build"]["timed_out"] is False
    assert snapshot["survivors"] == 1


def test_the_graders_own_modules_win(lane, limits):
    planted = "import os; os._exit(0)\n"
    names = ("g.py", "json.py", "conftest.py", "sitecustomize.py", "usercustomize.py", "subprocess.py")
    task = make_task(
        "",
        grader_cmd='python3 -c "import g; g.main()" && python3 -m g && python3 "$GRADER_DIR/g.py"',
        grader_files={
            "g.py": "import json, subprocess, sys\ndef main():\n    print(json.__file__)\n    sys.exit(1)\n"
            "if __name__ == '__main__':\n    main()\n"
        },
    )
    body = judge(lane, task, {**SOLUTION, **dict.fromkeys(names, planted)}, limits)
    assert (body["verdict"], body["detail"]["grader"]["exit"]) == ("fail", 1)


READER = """cat "$GRADER_DIR/spec.json" /grader/spec.json /case/grader/spec.json 2>/dev/null
for file in /proc/[0-9]*/environ; do
  place=$(tr '\\0' '\\n' < "$file" 2>/dev/null | sed -n 's/^GRADER_DIR=//p')
  [ -n "$place" ] && cat "$place/spec.json" "${file%environ}root$place/spec.json" 2>/dev/null
done
for file in /proc/self/fd/* /tmp/oracle*; do
  case ${file##*/} in 0 | 1 | 2) ;; *) timeout 1 cat "$file" 2>/dev/null ;; esac
done
true
"""


def test_a_candidate_run_by_run_candidate_cannot_read_the_oracle(lane, limits):
    """Not from the directory, not from another process, not from an open descriptor, not from a temporary file."""
    grader = """umask 077; cp "$GRADER_DIR/spec.json" /tmp/oracle
exec 7<"$GRADER_DIR/spec.json"
exec bash -c 'exec {high}<"$GRADER_DIR/spec.json"; run-candidate sh solution.sh </dev/null | grep -q oracle-42'
"""
    body = judge(lane, make_task(grader), {"solution.sh": READER}, limits)
    assert (body["verdict"], body["detail"]["grader"]["exit"]) == ("fail", 1)


def test_a_grader_that_runs_the_candidate_itself_is_found_by_the_canary(lane, limits):
    exposed = calibrate(lane, make_task('[ "$(sh solution.sh)" = 42 ]\n'), limits, repetition=1)
    assert (exposed["passed"], exposed["flags"]) == (True, ["oracle_exposed"])
    hidden = calibrate(lane, make_task(HONEST), limits, repetition=1)
    assert (hidden["passed"], hidden["flags"]) == (True, [])


def test_a_planted_reward_and_a_forged_output_change_nothing(lane, limits):
    files = {
        "reward.json": '{"score": 1.0}',
        "reward.txt": "1",
        "solution.sh": "echo '1 passed'; echo '{\"score\": 1}'; for d in . .. /grader /case/grader /tmp; do\n"
        "echo '{\"score\": 1}' > $d/reward.json; done 2>/dev/null; true\n",
    }
    body = judge(lane, make_task(HONEST), files, limits)
    assert (body["verdict"], body["score"], body["flags"]) == ("fail", 0.0, [])


def test_trojan_tools_in_the_candidates_directory_are_not_picked_up(lane, limits):
    trojan = "#!/bin/sh\nexit 0\n"
    names = ("curl", "python3", "sh", "run-candidate", ".bash_profile", ".profile", "bin/test")
    body = judge(lane, make_task(HONEST), {"solution.sh": "echo 41", **dict.fromkeys(names, trojan)}, limits)
    assert body["verdict"] == "fail"


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("yes", "output"),
        ("sleep 60", "wall"),
        ("python3 -c 'import os\nwhile True: os.fork()'", "processes"),
        (f"python3 -c '{HOG}'", "memory"),
        ("while :; do :; done", "cpu"),
        ("i=0; while [ $i -lt 9 ]; do head -c 30M /dev/zero > f$i; i=$((i + 1)); done; sleep 60", "disk"),
    ],
)
def test_abuse_ends_at_a_limit_and_is_the_candidates_fail(lane, limits, command, limit):
    if limit in ("wall", "processes"):
        limits = replace(limits, wall_s=5)
    if limit == "cpu":
        limits = replace(limits, cpu_s=2)
    body, snapshot = judge_files(lane, make_task(HONEST, build=command), SOLUTION, limits)
    assert body["verdict"] == "fail"
    build = snapshot["detail"]["build"]
    # A fork bomb may be held by the kernel's limit until its time is up, or see fork fail and end by itself.
    allowed = {limit, "wall", None} if limit in ("processes", "memory", "cpu") else {limit}
    assert build["limit"] in allowed
    assert build["exit"] != 0
    assert len(build["output_tail"]) <= 2000


def test_a_neighbour_with_many_processes_is_no_candidates_failure(lane, limits):
    """Another sandbox of the same user, at its own limit: what one may start does not depend on the other."""
    crowd = "i=0; while [ $i -lt 50 ]; do sleep 20 & i=$((i + 1)); done; wait"
    with ThreadPoolExecutor() as pool:
        neighbour = pool.submit(judge, lane, make_task(HONEST, build=crowd), SOLUTION, replace(limits, wall_s=8))
        build = "i=0; while [ $i -lt 40 ]; do sleep 1 & i=$((i + 1)); done; wait"
        for _ in range(2):
            assert judge(lane, make_task(HONEST, build=build), SOLUTION, limits)["verdict"] == "pass"
        assert neighbour.result()["scoring_status"] == "build_timed_out"


def test_one_file_cannot_outgrow_its_limit(lane, limits):
    build = "yes > f; [ $(stat -c %s f) -le 67108864 ] && rm f"
    assert judge(lane, make_task(HONEST, build=build), SOLUTION, limits)["verdict"] == "pass"


@pytest.mark.parametrize(
    "build", ["kill -9 -1; exit 5", "kill -9 1; kill -9 $PPID; exit 5", "rm -rf /bin /usr /work /case; exit 5"]
)
def test_a_candidate_that_wrecks_its_sandbox_fails_alone(lane, limits, build):
    assert judge(lane, make_task(HONEST, build=build), SOLUTION, limits)["verdict"] == "fail"
    assert judge(lane, make_task(HONEST), SOLUTION, limits)["verdict"] == "pass"


@pytest.mark.parametrize("code", [126, 127])
def test_a_grader_that_cannot_start_is_void_but_a_candidate_cannot_say_so(lane, limits, code):
    body = judge(lane, make_task(f"exit {code}\n"), SOLUTION, limits)
    assert (body["verdict"], body["scoring_status"], body["score"]) == ("void", "infra", None)
    assert body["reason"].startswith("infra:")
    body = judge(lane, make_task("run-candidate sh solution.sh\n"), {"solution.sh": f"exit {code}\n"}, limits)
    assert (body["verdict"], body["detail"]["grader"]["exit"]) == ("fail", 125)


@pytest.mark.parametrize("grader", ["kill -9 $$\n", "exit 2\n", "sleep 60\n"])
def test_a_grader_that_crashes_or_hangs_is_a_fail(lane, limits, grader):
    body = judge(lane, make_task(grader, timeout_s=3), SOLUTION, replace(limits, wall_s=3))
    assert (body["verdict"], body["score"]) == ("fail", 0.0)
    assert body["detail"]["grader"]["timed_out"] is ("sleep" in grader)


NETWORK = """import socket, sys
interfaces = [name for _, name in socket.if_nameindex() if name != "lo"]
try:
    socket.create_connection(("127.0.0.1", PORT), 1)
    sys.exit(9)
except OSError:
    sys.exit(len(interfaces))
"""


def test_no_network_in_either_phase(lane, limits):
    """No interface but a loopback of its own: the host's server cannot be reached, nor anything else."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = NETWORK.replace("PORT", str(server.getsockname()[1]))
        task = make_task("python3 net.py\n", build="python3 net.py")
        assert judge(lane, task, {**SOLUTION, "net.py": program}, limits)["verdict"] == "pass"


def test_nothing_of_the_host_is_visible(lane, limits, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("host-secret")
    os.chmod(secret, 0o644)
    build = f"! cat {secret} && ! cat /etc/shadow && ! ls {os.path.dirname(os.__file__)}/../../../../home/* 2>/dev/null"
    assert judge(lane, make_task(HONEST, build=build), SOLUTION, limits)["verdict"] == "pass"


def test_the_suites_canary_in_a_submission_is_a_tamper_flag(lane, limits):
    task = make_task(HONEST, canary="do-not-train-7f3a")
    body = judge(lane, task, {**SOLUTION, "notes.txt": "... do-not-train-7f3a ..."}, limits)
    assert (body["verdict"], body["tamper"]) == ("pass", ["suite_canary_in_submission"])


def processes_with(mark: str) -> list:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if mark in json.dumps(process.info["cmdline"] or []) and process.pid != os.getpid():
            found.append(process)
    return found


def test_limits_of_an_engine_are_in_force_or_the_grade_is_void(limits):
    """As root podman enforces them here. Rootless under cgroups version 1 it ignores them, and only prints that."""
    lane_or_skip("container")
    lane = open_lane("container", IMAGE, options={"engine_limits": {"cpus": 1, "memory_mb": 256}})
    if os.geteuid() == 0 or Path("/sys/fs/cgroup/cgroup.controllers").exists():
        body = judge(lane, make_task(HONEST), SOLUTION, limits)
        assert body["verdict"] == "pass"
        assert body["sandbox"]["engine_limits"] == {"cpus": 1, "memory_mb": 256}
    else:
        with pytest.raises(InfrastructureError, match="unlimited"):
            judge(lane, make_task(HONEST), SOLUTION, limits)


def test_the_engine_leaves_no_copy_of_the_oracle_behind(limits, tmp_path, monkeypatch):
    """Podman keeps what it is given on stdin in a file below TMPDIR, else /var/tmp."""
    lane = lane_or_skip("container")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert judge(lane, make_task(HONEST), SOLUTION, limits)["verdict"] == "pass"
    assert list(tmp_path.iterdir()) == []
