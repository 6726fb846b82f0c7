"""One suite, one submission, one artifact: the one-shot form, in the shape ``agent-learning.bench-result.v1``."""

import json
from collections import Counter
from pathlib import Path

from assize.adapter import void
from assize.benchmarks.command.court import judge_files, phase_limits
from assize.benchmarks.command.suite import Suite, Task, read_suite
from assize.errors import InfrastructureError, UsageError
from assize.records import write_atomic
from assize.sandbox import LANES, open_lane
from assize.submissions import read_submissions

RESULT_KIND = "agent-learning.bench-result.v1"
# How the work was made: handed in as files. How it ran: for real, under a lane.
EVIDENCE_CLASS = "captured_fixture"
EXECUTION_CLASS = "executable"


def run_bench(
    suite,
    control_mode: str = "artifact_in",
    submission: dict | None = None,
    sandbox: str = "bubblewrap",
    reference: bool = False,
    image: str | None = None,
    engine: str | None = None,
    limits: dict | None = None,
) -> dict:
    """Grade a submission against a suite.

    Parameters
    ----------
    suite : path of the suite.
    submission : task id -> {path: content}; a task that is not in it is void.
    sandbox : a lane; one that cannot start makes every row void, with ``error`` beginning ``infra:``.
    reference : submit every task's own reference.
    image, engine : of the container lane; a task's own ``image`` comes first.
    limits : as in a study's ``sandbox.limits``.

    Raises
    ------
    UsageError : the suite is broken, the control mode is not ``artifact_in``, or the submission names unknown tasks.
    """
    if control_mode != "artifact_in":
        raise UsageError("bad_usage", f"control_mode: {control_mode!r} is not allowed; allowed: artifact_in")
    if reference == (submission is not None):
        raise UsageError("bad_usage", "give either a submission or reference=True")
    loaded = read_suite(suite)
    submission = {} if submission is None else submission
    unknown = sorted(set(submission) - set(loaded.tasks))
    if unknown:
        raise UsageError("bad_submission", f"submission: no task {', '.join(unknown)} in suite {loaded.name}")
    rows = []
    for task in loaded.tasks.values():
        files = task.reference_files if reference else submission.get(task.id)
        rows.append(_row(loaded, task, files, sandbox, image, engine, limits or {}))
    return {
        "kind": RESULT_KIND,
        "suite": {"name": loaded.name, "version": loaded.version, "sha256": loaded.sha256},
        "control_mode": control_mode,
        "aggregate": aggregate(rows),
        "per_task": rows,
    }


def _row(suite: Suite, task: Task, files, sandbox: str, image, engine, limits: dict) -> dict:
    snapshot = None
    try:
        lane = open_lane(sandbox, task.image or image, engine)
        body, snapshot = judge_files(lane, task, files, phase_limits(task, limits))
    except (InfrastructureError, UsageError) as error:
        # An unknown sandbox is void like a missing one: no lane ran, so nothing was judged.
        body = void("infra", f"infra: {error.message}")
    grader = body.get("detail", {}).get("grader", {})
    build = (snapshot or {}).get("detail", {}).get("build") or {}
    infra = body["scoring_status"] == "infra"
    scored = body["verdict"] != "void"
    return {
        "task_id": task.id,
        "verdict": body["verdict"],
        "modality": suite.modality,
        "world_kind": None,
        "language": task.language,
        "result": {
            "scalar": body["score"],
            "components": {"grader_exit_ok": grader.get("exit") == 0} if scored else {},
            "pass_fail": {check["id"]: check["verdict"] == "pass" for check in body.get("checks", [])},
            "explanation": body["reason"],
        },
        "execution_class": EXECUTION_CLASS,
        "evidence_class": EVIDENCE_CLASS,
        "overclaim": False,
        "sandbox": sandbox,
        "error": None if scored else body["reason"],
        "raw": {
            "grading": "command",
            "grader_exit": grader.get("exit"),
            "build_exit": build.get("exit"),
            "timed_out": bool(grader.get("timed_out") or build.get("timed_out")),
            "scoring_status": body["scoring_status"],
            "infra_error": infra,
            "flags": body.get("flags", []),
            "tamper": body.get("tamper", []),
            "survivors": grader.get("survivors", 0) + build.get("survivors", 0),
            "isolated": body.get("sandbox", {}).get("isolated", False),
            "image_digest": body.get("sandbox", {}).get("image_digest"),
        },
    }


def aggregate(rows: list[dict]) -> dict:
    """The suite's numbers. Pure. ``pass_rate`` and ``mean_score`` are over scored rows, None when none is scored."""
    verdicts = Counter(row["verdict"] for row in rows)
    scored = verdicts["pass"] + verdicts["fail"]
    scalars = [row["result"]["scalar"] for row in rows if row["verdict"] != "void"]
    classes = sorted({row["evidence_class"] for row in rows})
    return {
        "count": len(rows),
        "scored": scored,
        "void": verdicts["void"],
        "passed": verdicts["pass"],
        "pass_rate": verdicts["pass"] / scored if scored else None,
        "mean_score": sum(scalars) / scored if scored else None,
        "by_modality": _by(rows, "modality"),
        "by_world_kind": _by(rows, "world_kind"),
        "by_execution_class": _by(rows, "execution_class"),
        "honesty": {
            "evidence_class": classes[0] if len(classes) == 1 else classes,
            "fixture_only": all(row["evidence_class"] == EVIDENCE_CLASS for row in rows),
            "any_live": any(row["evidence_class"] != EVIDENCE_CLASS for row in rows),
            "any_overclaim": any(row["overclaim"] for row in rows),
        },
    }


def _by(rows: list[dict], field: str) -> dict:
    groups = {}
    for row in rows:
        groups.setdefault(str(row[field]), Counter())[row["verdict"]] += 1
    return {
        name: {
            "count": sum(verdicts.values()),
            "scored": (scored := verdicts["pass"] + verdicts["fail"]),
            "passed": verdicts["pass"],
            "pass_rate": verdicts["pass"] / scored if scored else None,
        }
        for name, verdicts in groups.items()
    }


def add_verb(verbs) -> None:
    verb = verbs.add_parser("bench", help="grade one submission against one suite, without a study")
    verb.add_argument("suite", help="path of the suite")
    what = verb.add_mutually_exclusive_group(required=True)
    what.add_argument("--reference", action="store_true", help="submit every task's own reference")
    what.add_argument("--submission", help="JSON file: task id -> {path: content}")
    verb.add_argument("--sandbox", choices=LANES, default="bubblewrap")
    verb.add_argument("--image", help="of the container lane")
    verb.add_argument("--output", required=True, help="where the artifact goes")
    verb.set_defaults(call=_call)


def _call(arguments) -> dict:
    submission = None if arguments.reference else read_submissions(Path(arguments.submission).resolve())
    result = run_bench(
        arguments.suite,
        submission=submission,
        sandbox=arguments.sandbox,
        reference=arguments.reference,
        image=arguments.image,
        engine=arguments.engine,
    )
    write_atomic(arguments.output, json.dumps(result, indent=1, sort_keys=True).encode() + b"\n")
    return {"ok": True, "output": arguments.output, "aggregate": result["aggregate"]}
