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

# All else is PostgreSQL's default: a commit is on the disk when it returns.
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    # Without limits one forgotten session that holds a lock stops everybody who needs it, for ever. Who needs longer
    # says so with SET. A lock is waited for less long than a statement may take, so that the error names the lock.
    "lock_timeout": "30s",
    "statement_timeout": "5min",
    "idle_in_transaction_session_timeout": "5min",
}
_LOG = "server.log"
# Recovery after a crash belongs to the start, and is not to be broken off.
_START_SECONDS = "300"
# For a server that is neither up nor gone. One whose folder was deleted under it notices within 60 seconds.
_PATIENCE_SECONDS = 90.0
_LOOK_AGAIN_SECONDS = 0.05


def ensure_running(folder: Folder, lock: Path) -> dict[str, str]:
    """Return the address of a server that answers for the folder: the one that runs, or a new one.

    ``lock`` is the server's own. Raises OperationalError where none comes to answer, ImproperlyConfigured where
    its programs cannot be run here.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        address = postmaster.address(folder)
        answer = postmaster.answer(address)
        if address and answer is pq.Ping.OK:
            return address
        if time.monotonic() > deadline:
            raise failed(folder.path, "is neither up nor gone", _last_words(folder))
        # Whoever rejects is alive, with the lock or (started by hand) without it.
        proof = None if answer is pq.Ping.REJECT else locks.try_take(lock)
        if proof is not None:
            _start(folder, proof)
        else:
            # Somebody else's server that starts or ends: nothing tells this process when it is done.
            time.sleep(_LOOK_AGAIN_SECONDS)


def stop(folder: Folder, lock: Path) -> None:
    """Stop the server that ``ensure_running`` started, in this process or another; leave any other one alone."""
    if locks.is_free(lock):
        return
    address = postmaster.address(folder)
    if address and postmaster.answer(address) is not pq.Ping.NO_RESPONSE:
        _stop(folder, address)


def _start(folder: Folder, proof: int) -> None:
    """Start a new server and hand it the lock, which proves that no process of an earlier one is left."""
    try:
        socket = postmaster.new_socket_folder(folder)
        postmaster.clear_remains(folder, socket)
        _put_log_aside(folder)
        command = ["start", "-w", "-t", _START_SECONDS, "-l", _LOG, "-o", _options(socket)]
        started = _pg_ctl(folder, command, pass_fds=[proof])
    finally:
        locks.release(proof)
    if started.returncode:
        raise failed(folder.path, "did not start", _last_words(folder) or started.stderr)


def _stop(folder: Folder, address: Mapping[str, str]) -> None:
    stopped = _pg_ctl(folder, ["stop", "-w", "-m", "fast"])
    if postmaster.answer(address) is not pq.Ping.NO_RESPONSE:
        logger.warning("The embedded PostgreSQL of %s did not stop: %s", folder.path, stopped.stderr.strip())
    elif address["host"] != str(folder.path):
        with suppress(OSError):
            Path(address["host"]).rmdir()


def _pg_ctl(folder: Folder, command: Sequence[str], *, pass_fds: Sequence[int] = ()) -> CompletedProcess[str]:
    """Run pg_ctl, which makes the server a session of its own: no terminal's Ctrl-C reaches it."""
    program = binaries.usable_by(folder.owner) / "pg_ctl"
    # The path goes by the environment and the current folder: pg_ctl would put an argument into a shell's words.
    env = {"PGDATA": str(folder.path)}
    return account.run([program, *command], folder.owner, cwd=folder.path, env=env, pass_fds=pass_fds)


def _options(socket: Path) -> str:
    settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
    return shlex.join(["-k", os.fspath(socket), "-p", postmaster.PORT, *settings])


def _put_log_aside(folder: Folder) -> None:
    """Begin a new log and keep the one before, so that the log does not grow for ever."""
    log = folder.path / _LOG
    with suppress(FileNotFoundError):
        log.replace(log.with_name(_LOG + ".1"))


def _last_words(folder: Folder) -> str:
    try:
        lines = (folder.path / _LOG).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(lines[-15:])
