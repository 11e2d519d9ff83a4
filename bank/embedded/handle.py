"""A process's handle of a server, from its first connection until it ends."""

import logging
import os
import threading
from multiprocessing.util import Finalize
from pathlib import Path

from bank.embedded import account, binaries, locks, roles, server, watchdog
from bank.embedded.errors import unusable
from bank.embedded.folder import Folder, prepare

logger = logging.getLogger(__name__)


class ServerHandle:
    """The handle of this process on the server of one data folder; see ``handle_for``.

    ``address`` has the superuser's connection parameters.
    """

    def __init__(self, configured: Path) -> None:
        self.address: dict[str, str] = {}
        self._configured = configured
        self._locks = configured.with_name(configured.name + ".locks")
        self._folder: Folder | None = None
        self._users_lock: int | None = None
        self._identity: tuple[int, int] | None = None
        self._provided: set[str | None] = set()

    def join(self) -> None:
        """Make sure that the server runs, and keep it running while this process runs.

        Can be called again after the server has died. Raises ImproperlyConfigured where the server cannot run on this
        machine or with this folder, OperationalError where it failed to start.
        """
        binaries.installed()
        try:
            self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locks.holding(self._locks / "guard") as guard:
                self._join(guard)
        except OSError as error:
            raise unusable(self._configured, f"{error} (as {account.current_account().name})") from error

    def leave(self) -> None:
        """Release the server; the last process to do so stops it and waits for its end."""
        users_lock, self._users_lock = self._users_lock, None
        if users_lock is None:
            return None
        try:
            guard = locks.take(self._locks / "guard")
        except FileNotFoundError:
            # The locks were deleted with the data folder; a server without its folder ends by itself.
            return locks.release(users_lock)
        try:
            self._give_up(users_lock)
        finally:
            locks.release(guard)

    def provide(self, database: str | None) -> None:
        """Call ``roles.provide`` once for each database; raise what it raises."""
        if database not in self._provided:
            roles.provide(self.address, database)
            self._provided.add(database)

    def _join(self, guard: int) -> None:
        # Taken before the start: if this process is killed after it, others can adopt and stop the server.
        users_lock = locks.take(self._locks / "users", shared=True)
        try:
            self._prepare(guard)
        except BaseException:
            self._give_up(users_lock)
            raise
        if self._users_lock is not None:
            locks.release(self._users_lock)
        self._users_lock = users_lock
        self._provided.clear()

    def _prepare(self, guard: int) -> None:
        self._folder = prepare(self._configured, guard=guard)
        identity, self._identity = self._identity, self._folder.made
        if identity not in (None, self._identity):
            logger.warning(
                "The data folder %s was deleted or replaced while this process used it; its data is lost.",
                self._folder.path,
            )
        self.address = server.ensure_running(self._folder, self._locks / "server")
        watchdog.ensure(self._folder, self._locks)

    def _give_up(self, users_lock: int) -> None:
        """Release the users lock, and stop the server if no other process holds it."""
        try:
            if self._folder and locks.is_current(users_lock, self._locks / "users") and locks.try_exclusive(users_lock):
                server.stop(self._folder, self._locks / "server")
        finally:
            locks.release(users_lock)


_handles: dict[Path, ServerHandle] = {}
_changing = threading.RLock()


def handle_for(pgdata: str | os.PathLike[str], *, reconnect: bool = False) -> ServerHandle:
    """Return this process's handle of a data folder's server, which it joins on first use, and to ``reconnect``.

    Raises what ``ServerHandle.join`` raises.
    """
    configured = Path(pgdata).expanduser().resolve()
    with _changing:
        handle = _handles.get(configured) or ServerHandle(configured)
        if reconnect or configured not in _handles:
            handle.join()
        if not _handles:
            # Runs at the exit of a program or multiprocessing child, after a parent has joined its children.
            Finalize(None, _close_all, exitpriority=-100)
        _handles[configured] = handle
        return handle


def _close_all() -> None:
    while _handles:
        _handles.popitem()[1].leave()


def _reset_after_fork() -> None:
    """Drop the parent's handles, whose locks the child has closed; the child gets its own when it connects."""
    _handles.clear()
    _changing.release()


# A fork waits until other threads have joined: the child would inherit a half-finished state.
os.register_at_fork(before=_changing.acquire, after_in_parent=_changing.release, after_in_child=_reset_after_fork)
