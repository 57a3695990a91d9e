"""How does a user who is not root get a testbed?

Linux lets a user be root of namespaces of their own. A command that wants a testbed starts itself again by `words`:
as root of a network that is empty but for loopback, and with a `/run` that it may write. No other process sees what
it makes there, and all of it is gone when its last process is. Whoever comes later, from another terminal, goes in
by `join_words`.

There are no control groups and no real-time priority in there: sites are not limited, and links are late when the
machine is busy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from headwater.testbed.network import program

__all__ = ["MARK", "become", "is_private", "join_words", "own_command", "words"]

MARK = "HEADWATER_PRIVATE"  # set in there, so that a command does not go in twice
# What is in `/run` stays visible but for what testbeds keep there: disks and sockets of the user's are there, too.
FURNISH = """
export {mark}=1
{mount} -n -t tmpfs -o mode=755 headwater /mnt || exit 126
for one in /run/*/; do
    name=$(basename "$one")
    case $name in netns|headwater|mount|'*') continue;; esac
    mkdir "/mnt/$name" && {mount} -n --rbind "$one" "/mnt/$name" 2>/dev/null || rmdir "/mnt/$name"
done
{mount} -n --move /mnt /run || exit 126
{ip} link set dev lo up || exit 126
exec "$@"
"""


def words(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words that run a command in namespaces of its own.

    Raises:
        BindError: HW4903, a program is missing.
    """
    furnish = FURNISH.format(mark=MARK, mount=program("mount"), ip=program("ip"))
    enter = (program("unshare"), "--user", "--map-root-user", "--net", "--mount")
    return (*enter, "/bin/sh", "-c", furnish, "headwater", *command)


def join_words(pid: int, command: Sequence[str]) -> tuple[str, ...]:
    """Return the words that run a command in the namespaces of a process of this user's.

    Raises:
        BindError: HW4903, a program is missing.
    """
    # Its own identity: in there it is root's, and nobody may change groups.
    enter = (program("nsenter"), "--preserve-credentials", "--user", "--mount", "--net", f"--target={pid}")
    return (*enter, "--wd=.", *command)


def own_command() -> tuple[str, ...]:
    """Return the words that this process was started by."""
    return (sys.executable, *sys.orig_argv[1:])


def is_private(environment: Mapping[str, str]) -> bool:
    """Return whether this process is in namespaces that `words` made."""
    return environment.get(MARK) == "1" and os.geteuid() == 0


def become(command: Sequence[str]) -> NoReturn:
    """Go on as another command, under the same process id.

    Raises:
        OSError: it cannot be started.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execv(command[0], list(command))
