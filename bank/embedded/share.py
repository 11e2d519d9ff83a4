"""A process's share in a server: it begins with the first connection and ends with the process."""

import logging
import os
import threading
from multiprocessing.util import Finalize
from pathlib import Path

from bank.embedded import account, binaries, locks, roles, server, watchdog
from bank.embedded.errors import unusable
from bank.embedded.folder import Folder, prepare

logger = logging.getLogger(__name__)


class Share:
    """The share of this process in the server of one data folder, as ``share_of`` gives it.

    ``address`` holds the server's address as the words of a connection string, the superuser's.
    """

    def __init__(self, configured: Path) -> None:
        self.address: dict[str, str] = {}
        self._configured = configured
        self._locks = configured.with_name(configured.name + ".locks")
        self._folder: Folder | None = None
        self._lease: int | None = None
        self._made: tuple[int, int] | None = None
        self._provided: set[str | None] = set()

    def join(self) -> None:
        """Make sure that the server runs, and goes on running while this process does.

        Also right when it was joined before and the server has died since. Raises ImproperlyConfigured where the
        server cannot be had on this machine or with this folder, OperationalError where it was tried and failed.
        """
        binaries.installed()
        try:
            self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locks.holding(self._locks / "guard") as guard:
                self._join(guard)
        except OSError as error:
            raise unusable(self._configured, f"{error} (as {account.mine().name})") from error

    def leave(self) -> None:
        """End the share; the last process to do so stops the server and waits for its end."""
        lease, self._lease = self._lease, None
        if lease is None:
            return None
        try:
            guard = locks.take(self._locks / "guard")
        except FileNotFoundError:
            # The locks were deleted with the data they stood for; a server without its folder ends by itself.
            return locks.release(lease)
        try:
            self._give_up(lease)
        finally:
            locks.release(guard)

    def provide(self, database: str | None) -> None:
        """Do what ``roles.provide`` does, once; raise what it raises."""
        if database not in self._provided:
            roles.provide(self.address, database)
            self._provided.add(database)

    def _join(self, guard: int) -> None:
        # Taken before the start: a process killed in between leaves a server that others may adopt and stop.
        lease = locks.take(self._locks / "users", shared=True)
        try:
            self._prepare(guard)
        except BaseException:
            self._give_up(lease)
            raise
        if self._lease is not None:
            locks.release(self._lease)
        self._lease = lease
        self._provided.clear()

    def _prepare(self, guard: int) -> None:
        self._folder = prepare(self._configured, guard=guard)
        made, self._made = self._made, self._folder.made
        if made not in (None, self._made):
            logger.warning(
                "The data folder %s was deleted or replaced while this process used it, and its data with it.",
                self._folder.path,
            )
        self.address = server.ensure_running(self._folder, self._locks / "server")
        watchdog.ensure(self._folder, self._locks)

    def _give_up(self, lease: int) -> None:
        """Release the lease, and stop the server if it was the last one."""
        try:
            if self._folder and locks.is_current(lease, self._locks / "users") and locks.try_exclusive(lease):
                server.stop(self._folder, self._locks / "server")
        finally:
            locks.release(lease)


_shares: dict[Path, Share] = {}
_changing = threading.RLock()


def share_of(pgdata: str | os.PathLike[str], *, again: bool = False) -> Share:
    """Return this process's share in the server of a data folder, joined on first use, and ``again`` on demand.

    Raises what ``Share.join`` raises.
    """
    configured = Path(pgdata).expanduser().resolve()
    with _changing:
        share = _shares.get(configured) or Share(configured)
        if again or configured not in _shares:
            share.join()
        if not _shares:
            # Runs at the exit of a program and of a multiprocessing child, and after a parent has joined its children.
            Finalize(None, _leave_all, exitpriority=-100)
        _shares[configured] = share
        return share


def _leave_all() -> None:
    while _shares:
        _shares.popitem()[1].leave()


def _begin_child() -> None:
    """Forget the parent's shares, whose locks the child has closed: it takes its own when it connects."""
    _shares.clear()
    _changing.release()


# A fork waits for a start or a join of another thread, of which the child would inherit one half.
os.register_at_fork(before=_changing.acquire, after_in_parent=_changing.release, after_in_child=_begin_child)
