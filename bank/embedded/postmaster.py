"""What a running server shows of itself, and what a dead one leaves behind."""

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
# The bytes of a socket's path: 103 on macOS, 107 on Linux.
_LONGEST_SOCKET = 103
# No system has processes of this number.
_NOBODY = 2**31 - 2


def answer(target: Mapping[str, str] | None) -> pq.Ping:
    """Tell how a server answers at an address: OK, REJECT while it starts or stops, NO_RESPONSE without one."""
    if not target:
        return pq.Ping.NO_RESPONSE
    return pq.Ping(pq.PGconn.ping(make_conninfo(**target, dbname="postgres", connect_timeout=5).encode()))


def address(folder: Folder) -> dict[str, str] | None:
    """Return the address of the server that runs, or ran last, in this folder, as the words of a connection string.

    It is the superuser's. None without one, and for a server that was started by hand without a socket.
    """
    lines = _pid_file(folder)
    # A copy of a data folder brings the file along, and with it the way to the other folder's server.
    if len(lines) < 5 or Path(lines[1]) != folder.path or not lines[4]:
        return None
    return {"host": lines[4], "port": lines[3], "user": SUPERUSER}


def new_socket_folder(folder: Folder) -> Path:
    """Return the folder for the socket of a server to start: the data folder, or a private one if that is too long.

    Either is open to its owner alone, for whoever reaches the socket is let in. Raises ImproperlyConfigured where
    the private folder's name is taken by somebody else.
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


def clear_remains(folder: Folder, socket: Path) -> None:
    """Make a start possible that the remains of a dead server would prevent.

    The caller has the proof that no process of it is left. PostgreSQL takes such remains for a living server when
    their process id belongs to another program by now. The id alone is replaced, not the file removed: by the rest
    PostgreSQL finds out whether a server that was started by hand is still at work here.
    """
    path = folder.path / "postmaster.pid"
    lines = _pid_file(folder)
    if lines:
        new = path.with_name("postmaster.pid.new")
        new.unlink(missing_ok=True)
        with new.open("x") as file:
            file.write("\n".join([str(_NOBODY), *lines[1:]]) + "\n")
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
    """Tell whether a socket can be there: short enough, without the signs that PostgreSQL's lists are made of."""
    path = os.fsencode(directory / _SOCKET)
    return len(path) <= _LONGEST_SOCKET and not set(path) & set(b',"')


def _check_private(directory: Path, folder: Folder) -> None:
    status = directory.lstat()
    private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    if not private or status.st_uid != folder.owner.uid:
        raise unusable(folder.path, f"its socket needs {directory}, which is there and not {folder.owner.name}'s own")
