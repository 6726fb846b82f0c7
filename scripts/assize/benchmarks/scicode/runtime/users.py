"""A step as a user of its own: how it is kept apart in a container, where the engine allows no further namespaces.

The harness is the container's root; its directory is closed to everyone else. One user cannot signal, trace or read the
processes of another.
"""

import os
import signal


def make_home(user: int) -> str:
    """An empty directory that only this user, and root, can enter."""
    folder = f"/tmp/step-{user}"
    os.mkdir(folder, 0o700)
    os.chown(folder, user, user)
    return folder


def become(user: int) -> None:
    """Drop to the user for good: with root go all capabilities."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def alive(user: int) -> int:
    """How many processes of the user there are, the dead that nobody waited for not counted."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state = file.read().rpartition(b")")[2].split()[0]
                count += state != b"Z" and os.stat(f"/proc/{name}").st_uid == user
            except OSError:
                continue
    return count


def kill_all(user: int) -> None:
    """End every process of the user, again until none is left: one may fork while it is being ended.

    Root in a container may lack the right to signal others, so a process that becomes the user does it.
    """
    for _ in range(100):
        helper = os.fork()
        if helper == 0:
            try:
                become(user)
                os.kill(-1, signal.SIGKILL)
            finally:
                os._exit(0)
        os.waitpid(helper, 0)
        if alive(user) == 0:
            return
