"""What a task does on its node before its command: forget an earlier start, the site's environment modules, a scratch
directory, a place for Snakemake's cache. Pure."""

import re
import shlex

# Where sites keep the definition of the function ``module``: a job's shell is no login shell, and may not have read it.
INIT_FILES = (
    '"${MODULESHOME:-}/init/bash"',
    '"${LMOD_PKG:-}/init/bash"',
    "/etc/profile.d/modules.sh",
    "/etc/profile.d/lmod.sh",
    "/etc/profile.d/z00_lmod.sh",
    "/usr/share/modules/init/bash",
    "/usr/share/lmod/lmod/init/bash",
)


# A task that Slurm starts again, after a preemption say, left an end of its first start behind.
FORGET = """\
task=${{SLURM_ARRAY_JOB_ID:-${{SLURM_JOB_ID:-}}}}${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}
rm -f {folder}/"$task"_0_result.pkl
"""
# Snakemake does not start without a cache, which it makes below the home. Some nodes have no home, or one to read only.
CACHE = """\
cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}/snakemake/source-cache
mkdir -p "$cache" 2> /dev/null && [ -w "$cache" ] || export XDG_CACHE_HOME=$PWD/.snakemake/cache
"""


def script(folder: str, modules: str | None, scratch: str | None, workdir: str, command: str) -> str:
    """The bash of a task. ``folder`` has its result, ``workdir`` is where the command runs."""
    forget = FORGET.format(folder=shlex.quote(folder))
    return f"{forget}{preamble(modules, scratch)}cd {shlex.quote(workdir)} || exit 1\n{CACHE}{command}\n"


def preamble(modules: str | None, scratch: str | None) -> str:
    """Lines of bash for the settings ``modules`` and ``scratch``; empty where neither is set."""
    return (load_modules(modules) if modules else "") + (use_scratch(scratch) if scratch else "")


# Before the first line that calls ``module``: earlier ones may define it.
FIND_MODULE = f"""\
for file in {" ".join(INIT_FILES)}; do
  type module > /dev/null 2>&1 || [ ! -r "$file" ] || . "$file"
done
type module > /dev/null 2>&1 || {{
  echo "submitit-modules: no function module on $(uname -n); put the line that defines it first: . /.../init/bash" >&2
  exit 1
}}
"""


def load_modules(lines: str) -> str:
    """Run the lines, each of which is a command that must succeed."""
    text, found = "", False
    for line in filter(None, map(str.strip, lines.splitlines())):
        if not found and re.match(r"(module|ml)\s", line):
            text, found = text + FIND_MODULE, True
        failed = f'echo submitit-modules: {shlex.quote(line)} failed on "$(uname -n)" >&2'
        text += f"{line}\n(($? == 0)) || {{ {failed}; exit 1; }}\n"
    return text


def use_scratch(directory: str) -> str:
    """Make ``directory`` the place of temporary files. Variables in it are expanded on the node, where it must exist.

    Without the check, Python would take /tmp where it is missing, and say nothing.
    """
    check_scratch(directory)
    return (
        f'TMPDIR=$(set -u; printf %s "{directory}")\n'
        'case "$TMPDIR" in /*) [ -d "$TMPDIR" ] && [ -w "$TMPDIR" ] && [ -x "$TMPDIR" ] ;; *) false ;; esac || {\n'
        f"  echo submitit-scratch: {shlex.quote(directory)} "
        '"($TMPDIR) on $(uname -n) is no directory that $(id -un) can write to" >&2\n'
        "  exit 1\n"
        "}\n"
        "export TMPDIR\n"
    )


def check_scratch(directory: str) -> None:
    """ValueError where a directory cannot stand between double quotes in a script."""
    if re.search(r'["`\\\n]', directory):
        raise ValueError(f"submitit-scratch: {directory!r}: only a path and variables, such as /scratch/$USER")
