"""A small process beside each server, which stops it after its last user was killed.

A user process that exits normally stops the server itself; one that is killed, or ended by SIGTERM, cannot. The
watchdog checks every two seconds whether any process uses the server, and ends with it. It holds the lock ``watchdog``;
if it is killed, the next process that connects starts another.
"""

import os
import sys
import time
from pathlib import Path

from bank.embedded import account, locks, server
from bank.embedded.account import Account
from bank.embedded.folder import Folder

_LOOK_EVERY_SECONDS = 2.0
# Forks before anything is imported: the parent process waits until the first process ends.
_PROGRAM = """
import os
if os.fork():
    os._exit(0)
nothing = os.open(os.devnull, os.O_RDWR)
for stream in range(3):
    os.dup2(nothing, stream)
from bank.embedded.watchdog import main
main()
"""


def ensure(folder: Folder, lock_folder: Path) -> None:
    """Make sure that a watchdog runs for the folder's server; the caller holds the guard.

    An interpreter embedded in another program may not know its path; its server has no watchdog.
    """
    lock = locks.try_take(lock_folder / "watchdog") if sys.executable else None
    if lock is None:
        return
    arguments: list[str | Path] = [lock_folder, folder.path, str(folder.owner.uid), str(folder.owner.gid), str(lock)]
    # Only the import path, not the application's environment, which the process outlives.
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        account.run([sys.executable, "-c", _PROGRAM, *arguments], account.current_account(), env=env, pass_fds=[lock])
    finally:
        locks.release(lock)


def main() -> None:
    """Watch the server that the program's arguments name, until it has ended."""
    lock_folder, path, uid, gid, lock = sys.argv[1:]
    _watch(Folder(Path(path), Account(int(uid), int(gid))), Path(lock_folder), lock=int(lock))


def _watch(folder: Folder, lock_folder: Path, *, lock: int) -> None:
    over = False
    while not over:
        time.sleep(_LOOK_EVERY_SECONDS)
        if not lock_folder.is_dir():
            return  # deleted with the data; a server without its folder ends by itself
        with locks.holding(lock_folder / "guard"):
            over = _is_over(folder, lock_folder)
            if over:
                # Still under the guard: the process that starts the next server must see that it has no watchdog.
                os.close(lock)


def _is_over(folder: Folder, lock_folder: Path) -> bool:
    """Stop the server if no process uses it; return whether no server runs any more."""
    unused = locks.try_take(lock_folder / "users")
    if unused is not None:
        try:
            server.stop(folder, lock_folder / "server")
        finally:
            locks.release(unused)
    return locks.is_free(lock_folder / "server")
