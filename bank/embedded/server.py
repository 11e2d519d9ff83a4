"""Starting, adopting and stopping the server of a data folder; every caller holds the guard."""

import logging
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess

from psycopg import pq

from bank.embedded import account, binaries, locks, postmaster
from bank.embedded.errors import failed
from bank.embedded.folder import Folder

logger = logging.getLogger(__name__)

# All other settings have PostgreSQL's defaults, so commits are durable.
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    # Without limits one forgotten session that holds a lock would block others for ever; sessions that need longer use
    # SET. lock_timeout is shorter than statement_timeout, so that the error names the lock.
    "lock_timeout": "30s",
    "statement_timeout": "5min",
    "idle_in_transaction_session_timeout": "5min",
}
_LOG = "server.log"
# Long enough for recovery after a crash, which is part of the start.
_START_SECONDS = "300"
# For a server that neither answers nor has ended. One whose folder was deleted notices that within 60 seconds.
_PATIENCE_SECONDS = 90.0
_LOOK_AGAIN_SECONDS = 0.05


def ensure_running(folder: Folder, lock: Path) -> dict[str, str]:
    """Return the address of the folder's server; start one if none runs.

    ``lock`` is the path of the lock ``server``. Raises OperationalError where no server answers in time,
    ImproperlyConfigured where its programs cannot be run here.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        address = postmaster.address(folder)
        answer = postmaster.answer(address)
        if address and answer is pq.Ping.OK:
            return address
        if time.monotonic() > deadline:
            raise failed(folder.path, "neither answers nor has ended", _log_tail(folder))
        # A server that rejects connections runs, with the lock or (started by hand) without it.
        server_lock = None if answer is pq.Ping.REJECT else locks.try_take(lock)
        if server_lock is not None:
            _start(folder, server_lock)
        else:
            # Another process's server that starts or stops, which can only be polled.
            time.sleep(_LOOK_AGAIN_SECONDS)


def stop(folder: Folder, lock: Path) -> None:
    """Stop the server that ``ensure_running`` started, in this or another process; not one started by hand."""
    if locks.is_free(lock):
        return
    address = postmaster.address(folder)
    if address and postmaster.answer(address) is not pq.Ping.NO_RESPONSE:
        _stop(folder, address)


def _start(folder: Folder, server_lock: int) -> None:
    """Start a new server that inherits the lock, by which no process of an earlier one is left."""
    try:
        socket = postmaster.new_socket_folder(folder)
        postmaster.clear_leftovers(folder, socket)
        _rotate_log(folder)
        command = ["start", "-w", "-t", _START_SECONDS, "-l", _LOG, "-o", _options(socket)]
        started = _pg_ctl(folder, command, pass_fds=[server_lock])
    finally:
        locks.release(server_lock)
    if started.returncode:
        raise failed(folder.path, "did not start", _log_tail(folder) or started.stderr)


def _stop(folder: Folder, address: Mapping[str, str]) -> None:
    # "fast" ends remaining sessions with a rollback; "smart" would wait for them.
    stopped = _pg_ctl(folder, ["stop", "-w", "-m", "fast"])
    if postmaster.answer(address) is not pq.Ping.NO_RESPONSE:
        logger.warning("The embedded PostgreSQL of %s did not stop: %s", folder.path, stopped.stderr.strip())
    elif address["host"] != str(folder.path):
        with suppress(OSError):
            Path(address["host"]).rmdir()


def _pg_ctl(folder: Folder, command: Sequence[str], *, pass_fds: Sequence[int] = ()) -> CompletedProcess[str]:
    """Run pg_ctl, which starts the server in a new session, where Ctrl-C of the terminal does not reach it."""
    program = binaries.usable_by(folder.owner) / "pg_ctl"
    # The path is in the environment and the current folder: pg_ctl would pass an argument through a shell.
    env = {"PGDATA": str(folder.path)}
    return account.run([program, *command], folder.owner, cwd=folder.path, env=env, pass_fds=pass_fds)


def _options(socket: Path) -> str:
    settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
    return shlex.join(["-k", os.fspath(socket), "-p", postmaster.PORT, *settings])


def _rotate_log(folder: Folder) -> None:
    """Start a new log and keep the previous one, so that the log does not grow without limit."""
    log = folder.path / _LOG
    with suppress(FileNotFoundError):
        log.replace(log.with_name(_LOG + ".1"))


def _log_tail(folder: Folder) -> str:
    try:
        lines = (folder.path / _LOG).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-15:])
