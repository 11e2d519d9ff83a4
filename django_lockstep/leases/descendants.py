"""The descendants of this process. On Linux a process whose parent ends can be adopted by this one."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["adopted", "children", "descendants", "reap"]

_PR_SET_CHILD_SUBREAPER = 36


@contextmanager
def adopted() -> Iterator[None]:
    """Become the parent of every descendant whose own parent ends inside the block; Linux only, elsewhere no effect."""
    _adopt(True)
    try:
        yield
    finally:
        _adopt(False)


def _adopt(wanted: bool) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def children() -> set[int]:
    """Return the direct children of this process, zombies included."""
    return {pid for pid, parent, _ in _processes() if parent == os.getpid()}


def descendants(*, without: Set[int]) -> set[int]:
    """Return the living descendants, without these children and their descendants. Empty without /proc."""
    below: dict[int, list[int]] = {}
    for pid, parent, has_ended in _processes():
        if not has_ended:
            below.setdefault(parent, []).append(pid)
    found, edge = set[int](), [os.getpid()]
    while edge:
        edge = [pid for parent in edge for pid in below.get(parent, []) if pid not in without]
        found.update(edge)
    return found


def reap(*, without: Set[int]) -> None:
    """Reap ended children, as the parent of adopted processes must; their owners reap those in ``without``."""
    for pid, parent, has_ended in _processes():
        if has_ended and parent == os.getpid() and pid not in without:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _processes() -> Iterator[tuple[int, int, bool]]:
    """Yield each process, its parent, and whether it has ended."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent, *_ = entry.read_text(errors="replace").rpartition(")")[2].split()
            yield int(entry.parent.name), int(parent), state == "Z"
