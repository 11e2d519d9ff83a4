"""The process of a run: it works, says how far it is, and ends when it is asked to or when no page watches.

One at a time, on scratch databases. Such a database replaces the database of its aliases in the whole process. A web
process cannot use one: its other threads would answer requests from it, and its caches, such as Django's of content
types, would keep keys from it.
"""

from __future__ import annotations

import os
import pickle
import secrets
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Protocol

from django.db import DEFAULT_DB_ALIAS, connection, connections

from django_lockstep.errors import LockstepError
from django_lockstep.lab import conf
from django_lockstep.lab.pages.store import LiveRun, RunProgress, Store
from django_lockstep.lab.wording import gettext as _

_PERIOD = 0.25
"""Seconds between two reports of how far it is."""
_BUSY = _("Another page is running a race. Try again when it has finished.")
_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('lockstep.lab.pages', 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('lockstep.lab.pages', 0))"


class RunRefused(Exception):
    """The page does not run the race; the message says why, ``status`` is the response's."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def exclusive_run(connection: Any) -> Iterator[None]:
    """Keep other pages from running a race at the same time, because one keeps a processor busy.

    An exclusive advisory lock of the connection's session, taken without waiting. Raises `RunRefused` if it is taken,
    and on databases other than PostgreSQL.
    """
    if connection.vendor != "postgresql":
        text = _("Races need PostgreSQL; this database is {vendor}.", vendor=connection.vendor)
        raise RunRefused(text, status=409)
    with connection.cursor() as cursor:
        # Tried, not awaited: a request that waits would keep a thread of the server busy for as long as the race runs.
        cursor.execute(_LOCK)
        (taken,) = cursor.fetchone()
        if not taken:
            raise RunRefused(_BUSY, status=409)
        try:
            yield
        finally:
            cursor.execute(_UNLOCK)


class LiveRequest(Protocol):
    """What a run does; sent pickled."""

    @property
    def grace(self) -> float:
        """Seconds that it has to end when it is asked to; then its process is ended."""

    @property
    def initial(self) -> RunProgress:
        """How far it is before it has begun."""

    def run(self, process: LiveProcess) -> None:
        """Do it; what it raises is shown on the page."""


def main() -> None:
    """Read from standard input what to do, and do it."""
    os.dup2(2, 1)  # what a race prints
    token, store, request, names = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the process that started it
    # Those of the process that started this one.
    for alias, name in names.items():
        connections[alias].settings_dict["NAME"] = name
    LiveProcess(token, store, request).main()


class LiveProcess:
    """What a run tells its pages, and is told by them."""

    def __init__(self, token: str, store: Store, request: LiveRequest) -> None:
        self.store = store
        self._request = request
        self._run = LiveRun(token=token, state="starting", progress=request.initial)
        self._asked_to_stop = 0.0
        """When, by `time.monotonic`."""
        self._lock = threading.Lock()
        self._alone = False

    @property
    def stopping(self) -> bool:
        """Whether the run was asked to end, or no page watches it."""
        return bool(self._asked_to_stop)

    def report(self, progress: RunProgress) -> None:
        """Say how far it is; pages see it up to a quarter of a second later."""
        with self._lock:
            self._run = replace(self._run, state="stopping" if self.stopping else "running", progress=progress)

    def note(self, problem: str) -> None:
        """Add a problem, which the page shows when the run has ended."""
        with self._lock:
            self._run = replace(self._run, problems=(*self._run.problems, problem))

    def main(self) -> None:
        """Do what was requested, alone among the pages' runs."""
        threading.Thread(target=self._publish_until_done, daemon=True).start()
        # A connection of its own: races redirect those of the project.
        connection = connections[DEFAULT_DB_ALIAS].copy()
        try:
            with exclusive_run(connection):
                self._alone = True
                self._request.run(self)
        except (LockstepError, RunRefused) as refused:
            self.note(str(refused))
        except Exception as error:  # noqa: BLE001 - whatever it is, the page says so
            traceback.print_exc()
            self.note(f"{type(error).__name__}: {error}")
        finally:
            # Before the end is published: then no session of it is left.
            connection.close()
            connections.close_all()
        self._end("stopped" if self.stopping else "ended")

    def _end(self, state: Literal["ended", "stopped"]) -> None:
        with self._lock:
            self._run = replace(self._run, state=state)
            current = self.store.run()
            # One that was refused must not hide the run that goes on.
            if self._alone or current is None or current.token == self._run.token:
                self.store.publish(self._run)

    # In a thread of its own

    def _publish_until_done(self) -> None:
        while self._publish():
            time.sleep(_PERIOD)

    def _publish(self) -> bool:
        """Tell the pages, look whether the run is to end, and return whether it goes on."""
        with self._lock:
            if not self._run.active:
                return False
            if not self.stopping and (self.store.get("stop") == self._run.token or not self.store.watched):
                self._asked_to_stop = time.monotonic()
                self._run = replace(self._run, state="stopping")
            if self._alone:
                self.store.publish(self._run)
        if self.stopping and time.monotonic() - self._asked_to_stop > self._request.grace:
            self._end("stopped")
            os._exit(1)  # the next run removes what it has left
        return True


_START = 45.0
"""Seconds until a run that says nothing has died: the first one migrates the scratch database."""
_MAIN = "import django; django.setup(); from django_lockstep.lab.pages.process import main; main()"


def start_run(store: Store, request: LiveRequest) -> None:
    """Start what is requested in a new process.

    Raises `RunRefused` where the settings or the database do not allow it, and while a page runs something.
    """
    if not conf.runs_in_pages():
        text = _("Races do not run from this page: {setting} is off.", setting="LOCKSTEP_LAB_RUNS_IN_PAGES")
        raise RunRefused(text, status=403)
    if (run := store.run()) is not None and run.active:
        raise RunRefused(_BUSY, status=409)
    with exclusive_run(connection):  # tried here, so that most refusals come at once; the process takes it for itself
        pass
    token = secrets.token_hex(8)
    try:
        store.create()
    except OSError as error:
        text = _(
            "Races do not run from this page: {error}. {setting} names a folder for them.",
            error=str(error),
            setting="LOCKSTEP_LAB_LIVE_FOLDER",
        )
        raise RunRefused(text, status=503) from error
    store.watch()
    store.publish(LiveRun(token=token, state="starting", progress=request.initial), for_seconds=_START)
    process = _start_python(_MAIN)
    # The databases' names, which under a test runner are not those of the settings.
    names = {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}
    message = pickle.dumps((token, store, request, names))
    # The end must be waited for, or the process stays as a zombie for as long as this one lives.
    threading.Thread(target=process.communicate, args=[message], daemon=True).start()


def _start_python(code: str) -> subprocess.Popen[bytes]:
    """Start this interpreter with the code, and a pipe to its standard input."""
    # A new interpreter, not a fork: a web process has threads and open connections, which must not be shared. A session
    # of its own: Ctrl-C is for the server, and then no page watches the run.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
    command = [sys.executable, "-c", code]
    return subprocess.Popen(  # noqa: S603 - code of the lab
        command, stdin=subprocess.PIPE, env=environment, start_new_session=True
    )
