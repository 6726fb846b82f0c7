"""One step, in a process forked for it: the program and then its test cases, in one dict, as one script would run.

Three processes: the first waits, the second is the first process of a PID namespace (so that its end ends all), the
third is the script. Only the third runs the candidate's code; what it reports is believed up to its end-of-cases mark.
"""

import builtins
import json
import os
import random
import re
import resource
import sys
import traceback
import types

import namespaces
import users

MAX_SIGNATURE = 300
MAX_FRAME = 100
# What lies there lies there for every candidate.
_LIBRARY = re.compile(r"/(?:site-packages|dist-packages|python3\.\d+|standin)/(?!site-packages|dist-packages)(.+)$")
_write, _dumps = os.write, json.dumps


def run(step: dict, job: dict, events: int, status: int, output: int) -> None:
    """Become the first of the three processes; does not return.

    Parameters
    ----------
    step, job : as the runner's job file has them.
    events : descriptor for the script's reports, one JSON object a line.
    status : descriptor for how the script ended, out of its reach.
    output : descriptor for its stdout and stderr.
    """
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for descriptor, place in ((null, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, place)
        token = os.urandom(16).hex()
        _tell(status, {"token": token})
        targets = _read_targets(step, job, status)
        if job["isolation"] == "namespaces":
            namespaces.enter_namespaces()
        init = os.fork()
        if init == 0:
            _init(step, job, targets, token, events, status)
        _, ended = os.waitpid(init, 0)
        os._exit(0 if ended == 0 else 1)
    except BaseException as error:
        _tell(status, {"harness": f"{type(error).__name__}: {error}"[:MAX_SIGNATURE]})
        os._exit(1)


def _tell(descriptor: int, report: dict) -> None:
    _write(descriptor, _dumps(report).encode() + b"\n")


def _read_targets(step: dict, job: dict, status: int) -> list | None:
    """The targets, before any of the candidate's code runs. None where there are none.

    An error is the harness's, and told where no candidate can tell anything.
    """
    if job["mode"] == "derive" or not job["targets"]:
        return None
    try:
        from scicode.parse.parse import process_hdf5_to_tuple

        return process_hdf5_to_tuple(step["id"], len(step["cases"]), job["targets"])
    except Exception as error:
        _tell(status, {"error": signature(error), "phase": "targets", "origin": "harness"})
        os._exit(0)


def _init(step: dict, job: dict, targets, token: str, events: int, status: int) -> None:
    """The second process: make the place, start the script, wait for it, say how it ended. Does not return."""
    folder, survivors = os.getcwd(), 0
    try:
        if job["isolation"] == "namespaces":
            folder = "/work"
            namespaces.die_with_parent()
            hidden = [os.path.dirname(os.path.abspath(__file__)), "/assize"]
            # Derived targets are written to the working directory; candidates get an empty one each.
            hidden += [] if job["mode"] == "derive" else ["/work"]
            namespaces.arrange_files(hidden, job["disk_mb"])
            namespaces.set_dumpable(False)
        elif job["isolation"] == "users":
            folder = users.make_home(job["user"])
        else:
            folder = os.path.join(folder, f"step-{job['user']}")
            os.mkdir(folder)
        script = os.fork()
        if script == 0:
            _become_script(job)
            _script(step, job, targets, token, events, status, folder)
        os.close(events)
        _, ended = os.waitpid(script, 0)
        if job["isolation"] == "namespaces":
            survivors = users.alive(os.getuid()) - 1
        elif job["isolation"] == "users":
            survivors = users.alive(job["user"])
        _tell(status, {"exit": os.waitstatus_to_exitcode(ended), "survivors": survivors})
        os._exit(0)
    except BaseException as error:
        _tell(status, {"harness": f"{type(error).__name__}: {error}"[:MAX_SIGNATURE]})
        os._exit(1)


def _become_script(job: dict) -> None:
    """Limits, no capabilities, fresh random streams: as if this process had been started for the script alone."""
    if job["isolation"] == "namespaces":
        namespaces.drop_capabilities()
    elif job["isolation"] == "users":
        users.become(job["user"])
    if job["isolation"] != "none":
        # A change of user or of capabilities undoes both.
        namespaces.die_with_parent()
        namespaces.set_dumpable(True)
    limits = {resource.RLIMIT_DATA: job["memory_mb"] << 20, resource.RLIMIT_CORE: 0}
    if job["isolation"] != "none":
        # Counted in this user namespace, or for this user, alone: one step's processes are no other step's failure.
        limits[resource.RLIMIT_NPROC] = job["processes"]
    for name, value in limits.items():
        _, hard = resource.getrlimit(name)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (value, value))
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def _script(step: dict, job: dict, targets, token: str, events: int, status: int, folder: str) -> None:
    """The third process: run the program and the cases, report, end. Does not return once the program has begun."""
    os.chdir(folder)
    path = os.path.join(folder, f"{step['id']}.py")
    oracle = os.path.dirname(os.path.abspath(__file__))
    with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(step["program"])
    sys.argv = [path]
    sys.path[:] = [folder, *(place for place in sys.path if not place.startswith(oracle))]
    module = types.ModuleType("__main__")
    namespace = module.__dict__
    namespace.update(__file__=path, __builtins__=builtins, __cached__=None, __annotations__={})
    sys.modules["__main__"] = module

    def report(**facts) -> None:
        _tell(events, facts)

    if job["mode"] == "derive":
        _derive(step, job, namespace, path, report, token)
    from audit import Audit

    audit = Audit(lambda name: report(flag=name), path, oracle)
    for name in [name for name, found in sys.modules.items() if _is_harness(found, oracle)]:
        del sys.modules[name]
    os.close(status)
    # Compiled before anything runs: whatever compiling says of a text is that text's own, however it says it.
    phase, place = "program", "code"
    try:
        program, cases = compile(step["program"], path, "exec", dont_inherit=True), []
        place = "tests"
        for number, case in enumerate(step["cases"], 1):
            phase = f"case {number}"
            cases.append(compile(case, f"{path}:{phase}", "exec", dont_inherit=True))
    except BaseException as error:
        report(error=signature(error), phase=phase, origin=place)
        _print_traceback(error)
        os._exit(0)
    phase = "program"
    try:
        audit.start()
        exec(program, namespace)
        audit.check_comparisons(namespace)
        for number, case in enumerate(cases, 1):
            phase = f"case {number}"
            if targets is not None:
                namespace["target"] = targets[number - 1]
            exec(case, namespace)
            audit.check_comparisons(namespace)
        sys.stdout.flush()
        report(end=token)
    except SystemExit as error:
        if error.code in (None, 0, False):
            audit.flag("early_exit")
        report(error="early exit", phase=phase, origin="code")
    except BaseException as error:
        audit.stop()
        report(error=signature(error), phase=phase, origin=origin(error, path, step["lines"]))
        _print_traceback(error)
    os._exit(0)


def _is_harness(module, oracle: str) -> bool:
    """Whether a module is the harness's own: a script would not find it, but for the ``scicode`` package."""
    place = getattr(module, "__file__", None) or ""
    return place.startswith(oracle) and not place.startswith(os.path.join(oracle, "standin"))


def _derive(step: dict, job: dict, namespace: dict, path: str, report, token: str) -> None:
    """Run reference code and write what its cases compare with ``target``. Does not return."""
    import h5py
    from derivation import DERIVED, derived_value, deriving_case
    from h5file import write_targets

    try:
        exec(compile(step["program"], path, "exec", dont_inherit=True), namespace)
        targets = []
        for number, case in enumerate(step["cases"], 1):
            namespace.pop(DERIVED, None)
            exec(compile(deriving_case(case), f"{path}:case {number}", "exec", dont_inherit=True), namespace)
            targets.append(derived_value(namespace.get(DERIVED)))
        with h5py.File(os.path.join(job["work"], f"{step['id']}.h5"), "w") as file:
            write_targets(file, step["id"], targets)
        report(end=token)
    except BaseException as error:
        report(error=signature(error), phase="derive", origin="code")
        _print_traceback(error)
    os._exit(0)


def signature(error: BaseException) -> str:
    """``Type: message @ library/file.py:function`` on one line, bounded.

    What a traceback ends with, and the innermost frame of a library, if there is one.
    """
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        message = " ".join(str(error).split())
    except BaseException:
        message = "(no message: its __str__ failed)"
    frame = library_frame(error)
    suffix = f" @ {frame}" if frame else ""
    return (f"{name}: {message}" if message else name)[: MAX_SIGNATURE - len(suffix)] + suffix


def library_frame(error: BaseException) -> str | None:
    """``numpy/linalg/_linalg.py:solve``: where of a library an error was raised, or None."""
    innermost = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        found = _LIBRARY.search(frame.f_code.co_filename)
        if found:
            innermost = "".join(f"{found[1]}:{frame.f_code.co_name}".split())[:MAX_FRAME]
    return innermost


def origin(error: BaseException, path: str, lines: list[int]) -> str:
    """Which text raised: dependencies, context, code or tests. That of the deepest frame of the script's own.

    Where none is, the code did: nothing else has run, and no frame is no sign of the harness.
    """
    place = "code"
    dependencies, context = lines
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if name == path:
            place = "dependencies" if line <= dependencies else "context" if line <= dependencies + context else "code"
        elif name.startswith(f"{path}:case"):
            place = "tests"
    return place


def _print_traceback(error: BaseException) -> None:
    try:
        traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        return
