"""A small process beside each server, which stops it when its last user was killed.

A user that ends in the ordinary way stops the server itself; one that is killed, or ended by SIGTERM, cannot. The
watchdog looks every two seconds whether anybody has a share in the server, and ends with it. The lock ``watchdog`` in
its hands tells that there is one. It is killed? Then the next user to come starts another.
"""

import os
import sys
import time
from pathlib import Path

from bank.embedded import account, locks, server
from bank.embedded.account import Account
from bank.embedded.folder import Folder

_LOOK_EVERY_SECONDS = 2.0
# Into the background before anything is imported: the process that asks waits for the first one's end.
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
    """Make sure that a watchdog looks after the folder's server; the caller holds the guard.

    An interpreter inside another program may not know its own path; its server goes without a watchdog.
    """
    lock = locks.try_take(lock_folder / "watchdog") if sys.executable else None
    if lock is None:
        return
    arguments: list[str | Path] = [lock_folder, folder.path, str(folder.owner.uid), str(folder.owner.gid), str(lock)]
    # The way to this package, and no more of the environment: the process outlives the application.
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        account.run([sys.executable, "-c", _PROGRAM, *arguments], account.mine(), env=env, pass_fds=[lock])
    finally:
        locks.release(lock)


def main() -> None:
    """Watch the server that the arguments of the program name, until it is gone."""
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
                # Still under the guard: whoever starts the next server must see that its watchdog is missing.
                os.close(lock)


def _is_over(folder: Folder, lock_folder: Path) -> bool:
    """Stop the server where no process has a share in it; tell whether none runs any more."""
    unused = locks.try_take(lock_folder / "users")
    if unused is not None:
        try:
            server.stop(folder, lock_folder / "server")
        finally:
            locks.release(unused)
    return locks.is_free(lock_folder / "server")
