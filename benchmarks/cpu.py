"""CPU time of a server on the same machine, from Linux's ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_LOCAL = ("/", "127.", "::1", "localhost")
# Fields of /proc/PID/stat behind the command's name, as proc(5) counts them less 3.
# After a process's own user and system time comes that of its children that have ended.
_PARENT, _USER, _SYSTEM, _CHILDREN_SYSTEM = 1, 11, 12, 14
_TRIES = 20


def server_seconds(connection: Any) -> float | None:
    """Return the CPU seconds of the whole server so far: all its processes, and those that have ended.

    None where its processes are not visible: on another machine or in another container, or without ``/proc``.
    """
    postmaster = _postmaster(connection)
    if postmaster is None:
        return None
    before = None
    for _ in range(_TRIES):
        own = _stat(postmaster)
        if own is None or own == before:
            break
        ticks = sum(stat[_USER] + stat[_SYSTEM] for stat in _stats() if stat[_PARENT] == postmaster)
        # The time of a process that ends during the scan may count twice or not at all: repeat until nothing changed.
        before = own
    return None if own is None else float((ticks + sum(own[_USER:])) / os.sysconf("SC_CLK_TCK"))


def _postmaster(connection: Any) -> int | None:
    connection.ensure_connection()
    info = connection.connection.info
    if not info.host.startswith(_LOCAL):
        return None
    try:
        if not (_PROC / str(info.backend_pid) / "comm").read_text().startswith("postgres"):
            return None
    except OSError:
        return None
    stat = _stat(info.backend_pid)
    return None if stat is None else stat[_PARENT]


def _stats() -> Iterator[list[int]]:
    for folder in _PROC.iterdir():
        stat = _stat(int(folder.name)) if folder.name.isdecimal() else None
        if stat is not None:
            yield stat


def _stat(pid: int) -> list[int] | None:
    """Return the fields after the command's name, which may contain spaces and parentheses; the state is 0."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return [0, *map(int, fields[1 : _CHILDREN_SYSTEM + 1])]
