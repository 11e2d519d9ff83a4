"""File locks (flock) of processes: the kernel releases them when their holder ends, however it ends.

A lock is the descriptor of an open file. It belongs to the open file, not to the process: a child that inherits the
descriptor holds the lock too, until the last of them closes it. Therefore a lock is closed, never unlocked; forked
children close those that they inherited; and a started program inherits only those passed to it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_held: set[int] = set()


def take(path: Path, *, shared: bool = False) -> int:
    """Wait for the lock and return it; raise OSError where the file cannot be opened."""
    lock = _open(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    except BaseException:
        release(lock)
        raise
    return lock


def try_take(path: Path) -> int | None:
    """Return the exclusive lock, or None if another process holds it; raise OSError as ``take`` does."""
    lock = _open(path)
    if try_exclusive(lock):
        return lock
    release(lock)
    return None


def is_free(path: Path) -> bool:
    """Whether no process holds the lock; raise OSError as ``take`` does."""
    lock = try_take(path)
    if lock is not None:
        release(lock)
    return lock is not None


def try_exclusive(lock: int) -> bool:
    """Convert a shared lock to an exclusive one; return False if others hold it (the shared lock may then be lost)."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def release(lock: int) -> None:
    """Close this process's descriptor of the lock; children that inherited it still hold it."""
    _held.discard(lock)
    os.close(lock)


def is_current(lock: int, path: Path) -> bool:
    """Whether the lock is on the file that now has this path, and not on a deleted one."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except OSError:
        return False


@contextmanager
def holding(path: Path) -> Iterator[int]:
    """Hold the exclusive lock in the block; raise OSError as ``take`` does."""
    lock = take(path)
    try:
        yield lock
    finally:
        release(lock)


def _open(path: Path) -> int:
    # O_NOFOLLOW: in a shared directory another user could place a symbolic link here.
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    _held.add(lock)
    return lock


def _close_inherited() -> None:
    for lock in list(_held):
        with suppress(OSError):
            release(lock)


os.register_at_fork(after_in_child=_close_inherited)
