"""The postmaster's pid file and socket: the address of a running server, and the leftovers of a dead one."""

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from psycopg import pq
from psycopg.conninfo import make_conninfo

from bank.embedded import account
from bank.embedded.errors import unusable
from bank.embedded.folder import Folder, short_name

PORT = "5432"
SUPERUSER = "postgres"
_SOCKET = f".s.PGSQL.{PORT}"
# The maximum bytes of a socket's path: 103 on macOS, 107 on Linux.
_LONGEST_SOCKET = 103
# Larger than the largest process id of any system.
_UNUSED_PID = 2**31 - 2


def answer(target: Mapping[str, str] | None) -> pq.Ping:
    """Return the server's state: OK, REJECT while it starts or stops, NO_RESPONSE if it does not run."""
    if not target:
        return pq.Ping.NO_RESPONSE
    return pq.Ping(pq.PGconn.ping(make_conninfo(**target, dbname="postgres", connect_timeout=5).encode()))


def address(folder: Folder) -> dict[str, str] | None:
    """Return the connection parameters of the server that runs, or ran last, in this folder, for the superuser.

    None if there was no server, or it was started by hand without a socket.
    """
    lines = _pid_file(folder)
    # A copied data folder contains the original's pid file, which leads to the original's server.
    if len(lines) < 5 or Path(lines[1]) != folder.path or not lines[4]:
        return None
    return {"host": lines[4], "port": lines[3], "user": SUPERUSER}


def new_socket_folder(folder: Folder) -> Path:
    """Return the folder for a new server's socket: the data folder, or a private one if that path is too long.

    Only its owner can access either of them, because access to the socket is the only authentication. Raises
    ImproperlyConfigured where the private folder belongs to another user.
    """
    if _fits(folder.path):
        return folder.path
    private = _private_socket_folder(folder)
    private.mkdir(mode=0o700, exist_ok=True)
    if account.is_root():
        folder.owner.own(private)
    _check_private(private, folder)
    return private


def _private_socket_folder(folder: Folder) -> Path:
    name = f"bank-embedded-{folder.owner.uid}-{short_name(folder.path)}"
    if account.is_root():
        return account.root_state() / name
    temporary = Path(tempfile.gettempdir(), name)
    return temporary if _fits(temporary) else Path("/tmp", name)  # noqa: S108 - checked for its owner below


def clear_leftovers(folder: Folder, socket: Path) -> None:
    """Change or remove files of a dead server that would prevent a start.

    The caller holds the server lock, so no process of that server is left. PostgreSQL would take the pid file for a
    running server's if another program now has the process id. Only the id is replaced, the file is not removed: from
    the rest PostgreSQL detects a server that was started by hand and still runs here.
    """
    path = folder.path / "postmaster.pid"
    lines = _pid_file(folder)
    if lines:
        new = path.with_name("postmaster.pid.new")
        new.unlink(missing_ok=True)
        with new.open("x") as file:
            file.write("\n".join([str(_UNUSED_PID), *lines[1:]]) + "\n")
        folder.owner.own(new)
        new.replace(path)
    else:
        path.unlink(missing_ok=True)
    (socket / f"{_SOCKET}.lock").unlink(missing_ok=True)


def _pid_file(folder: Folder) -> list[str]:
    try:
        return (folder.path / "postmaster.pid").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _fits(directory: Path) -> bool:
    """Whether a socket can be in the folder: its path is short enough, and has no separators of PostgreSQL's lists."""
    path = os.fsencode(directory / _SOCKET)
    return len(path) <= _LONGEST_SOCKET and not set(path) & set(b',"')


def _check_private(directory: Path, folder: Folder) -> None:
    status = directory.lstat()
    private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    if not private or status.st_uid != folder.owner.uid:
        raise unusable(folder.path, f"its socket needs {directory}, which does not belong to {folder.owner.name} alone")
