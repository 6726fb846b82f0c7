"""A step's own corner of the sandbox: namespaces in which the harness's files and all other steps do not exist.

Runs inside the sandbox, unprivileged: a user namespace gives the right to make the others. Constants are from
<linux/sched.h>, <linux/prctl.h>, <sys/mount.h> and <linux/capability.h>.
"""

import ctypes
import os

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
CAPABILITY_VERSION_3 = 0x20080522
LAST_CAPABILITY = 63
SIGKILL = 9

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments) -> None:
    """Call a C function that returns 0, or raise OSError."""
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def enter_namespaces() -> None:
    """Leave for new user, mount and IPC namespaces; the next fork is the first process of a new PID namespace."""
    user, group = os.getuid(), os.getgid()
    _call("unshare", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID)
    for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)


def arrange_files(hidden: list[str], size_mb: int) -> None:
    """From inside the new PID namespace: /proc of its own, and an empty /tmp, /dev/shm and ``hidden`` directories."""
    _call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    for place in ["/tmp", "/dev/shm", *hidden]:
        if os.path.isdir(place):
            options = f"size={size_mb}m,mode=755".encode()
            _call("mount", b"tmpfs", place.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options)
    _call("mount", b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV, None)


def drop_capabilities() -> None:
    """Give up what the user namespace granted: the mounts can then not be undone, and init not be traced."""
    for capability in range(LAST_CAPABILITY + 1):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def die_with_parent() -> None:
    _call("prctl", PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)


def set_dumpable(value: bool) -> None:
    """A process that is not dumpable cannot be traced, and its memory and descriptors cannot be read."""
    _call("prctl", PR_SET_DUMPABLE, int(value), 0, 0, 0)
