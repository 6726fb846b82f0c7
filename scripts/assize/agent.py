"""The solver ``command``: an agent that works in a prepared workspace, in the study's lane, and is told its task there.

The task is shown beside the workspace, read-only: whatever lies in the workspace is frozen and judged.
"""

from pathlib import Path

from assize.archive import Rejected
from assize.sandbox import Limits, Phase
from assize.study import DEFAULT_TIMEOUT_S

INSTANCE = "instance.txt"
INSTRUCTION = "instruction.txt"


def run_agent(lane, condition: dict, workspace: Path, limits: dict, instance: str, instruction: str) -> dict:
    """The body of a solved record. What the command left is judged, however it ended.

    Parameters
    ----------
    condition : the study's, with ``command``, and ``timeout_s`` (seconds) and ``network`` where it says so.
    limits : as in a study's ``sandbox.limits``; the condition's ``timeout_s`` is the wall-clock.
    """
    limits = Limits.of(limits, wall_s=condition.get("timeout_s", DEFAULT_TIMEOUT_S))
    task_files = {INSTANCE: f"{instance}\n", INSTRUCTION: f"{instruction.rstrip()}\n"}
    network = condition.get("network", False)
    try:
        outcome = lane.run_candidate(
            Phase(condition["command"], workspace, limits, task_files=task_files, network=network)
        )
    except Rejected as reason:
        return {"status": "rejected", "reason": str(reason)}
    return {"status": "done", "detail": {"agent": outcome.as_json()}}
