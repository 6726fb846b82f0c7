"""The subprocess lane: no isolation at all. For code that is trusted, and recorded so."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from assize.sandbox import TASK_DIR, Outcome, Phase
from assize.sandbox.supervise import WRAPPER, has_marker, read_reward, supervise, write_files

PATH = "/usr/local/bin:/usr/bin:/bin"
RUN_CANDIDATE = '#!/bin/sh\n"env" -u GRADER_DIR -u PYTHONPATH -u PYTHONSAFEPATH "$@"\n'


class SubprocessLane:
    """Runs as the user, in the file system of the host; only time, output and process limits hold."""

    name = "subprocess"

    def provenance(self) -> dict:
        return {"lane": self.name, "isolated": False, "image": None, "image_digest": None}

    def run_candidate(self, phase: Phase) -> Outcome:
        if not phase.task_files:
            return self._run(phase, {})
        with tempfile.TemporaryDirectory(prefix="assize-task-") as folder:
            write_files(Path(folder), phase.task_files)
            return self._run(phase, {TASK_DIR: folder})

    def run_grader(self, phase: Phase) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="assize-grader-") as folder:
            grader_dir, tools = Path(folder, "grader"), Path(folder, "tools")
            grader_dir.mkdir()
            write_files(grader_dir, phase.grader_files)
            write_files(tools, {"run-candidate": RUN_CANDIDATE})
            (tools / "run-candidate").chmod(0o755)
            environment = {
                "GRADER_DIR": str(grader_dir),
                "PATH": f"{tools}:{PATH}",
                "PYTHONSAFEPATH": "1",
                "PYTHONPATH": str(grader_dir),
            }
            outcome = self._run(phase, environment)
            reward, fault = read_reward(grader_dir)
        return replace(outcome, reward=reward, reward_fault=fault, marker=has_marker(phase.work))

    @staticmethod
    def _run(phase: Phase, environment: dict) -> Outcome:
        # Without a user namespace the process limit would count all of the user's processes: the watch limits alone.
        argv = ["/bin/sh", "-c", WRAPPER, "unlimited", "/bin/sh", "-c", phase.command]
        common = {"PATH": PATH, "HOME": os.fspath(phase.work), "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        outcome, _ = supervise(
            argv, phase.limits, phase.work, kill_tree=True, cwd=phase.work, env={**common, **environment}
        )
        return outcome
