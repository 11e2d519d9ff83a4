"""What a run and the pages that show it tell each other: files in one folder, by Django's cache of files."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from django.core.cache.backends.filebased import FileBasedCache
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

from django_lockstep.lab import conf
from django_lockstep.lab.explorer.render.reports import RaceReport
from django_lockstep.lab.explorer.results import Verdict

UNWATCHED = 20.0
"""Seconds after which a run that no page has shown ends. On a busy machine a process of the server takes twelve seconds
to answer its first request, while the visitor waits for it."""
_LOST = 10.0
"""Seconds after which a run that says nothing has died."""


class RunProgress(Protocol):
    """How far a run is; picklable."""

    @property
    def template(self) -> str:
        """Makes a line of it, from ``run`` and ``progress``."""

    @property
    def names(self) -> tuple[str, ...]:
        """What runs: a page shows how a run ended where one of these is on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A run that a page has started."""

    token: str
    state: Literal["starting", "running", "stopping", "ended", "stopped"]
    progress: RunProgress
    problems: tuple[str, ...] = ()
    """Why it was refused, or what failed in it."""

    @property
    def active(self) -> bool:
        return self.state not in ("ended", "stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastResult:
    """What the last run of a race came to."""

    verdict: Verdict
    as_expected: bool
    schedules: int
    seconds: float
    when: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRace:
    """What a page shows of a race: an exploration, or one schedule."""

    report: RaceReport
    result: LastResult | None = None
    """Of an exploration."""


class Store:
    """Reads and writes the files; whatever is missing, or was written by other code, is None."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def _cache(self) -> FileBasedCache:
        # Made when it is needed, because it makes the folder. No limit that ordinary projects reach: what is too much
        # would be thrown out at random.
        return FileBasedCache(str(self.folder), {"TIMEOUT": None, "OPTIONS": {"MAX_ENTRIES": 100_000}})

    def create(self) -> None:
        """Make the folder if it is missing. Raises ``ImproperlyConfigured`` as `open_store` does."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own(self.folder)

    # The run

    def run(self) -> LiveRun | None:
        """Return the run that goes on, or the last one."""
        status: LiveRun | None = self.get("run")
        return status

    def publish(self, run: LiveRun, *, for_seconds: float = _LOST) -> None:
        """Say how far a run is; it has died if nothing is published for so long."""
        self._cache.set("run", run, for_seconds if run.active else None)

    def watch(self) -> None:
        """Say that a page shows the run."""
        self._cache.set("watched", True, UNWATCHED)

    @property
    def watched(self) -> bool:
        return bool(self.get("watched"))

    def stop(self, token: str) -> None:
        """Ask the run of this token to end; nothing is kept of another token, which may be anybody's invention."""
        run = self.run()
        if run is not None and run.active and run.token == token:
            self.put("stop", token)

    # What runs came to

    def keep(self, shown: ShownRace, *, schedule: str = "") -> None:
        """Keep the last exploration of a race, or run of a schedule; only one process at a time may do that."""
        name = shown.report.name
        self.put(_shown_key(name, schedule), shown)
        if shown.result is not None:
            self.put("results", {**self.results(), name: shown.result})

    def results(self) -> Mapping[str, LastResult]:
        """Return the last result of each race, by name."""
        return self.get("results") or {}

    def shown(self, name: str, *, schedule: str = "") -> ShownRace | None:
        """Return the last exploration of a race, or the last run of a schedule."""
        shown: ShownRace | None = self.get(_shown_key(name, schedule))
        return shown

    def put(self, key: str, value: object) -> None:
        """Keep what a run came to."""
        self._cache.set(key, value)

    def get(self, key: str) -> Any:
        """Return what was kept."""
        if not self.folder.exists():
            return None
        try:
            return self._cache.get(key)
        except Exception:  # noqa: BLE001 - pickled by another version, whose classes may raise anything when loaded
            return None


def open_store() -> Store:
    """Return the store of this project; what is read from a missing folder is nothing.

    Raises ``ImproperlyConfigured`` if the folder is not this user's alone: what is unpickled could be anyone's code.
    """
    # By default one for this user, these settings and this database.
    user = os.getuid() if os.name == "posix" else ""
    database = connections[DEFAULT_DB_ALIAS].settings_dict
    parts = [os.environ.get("DJANGO_SETTINGS_MODULE", ""), *(str(database[key]) for key in ("HOST", "PORT", "NAME"))]
    default = Path(tempfile.gettempdir()) / f"django-lockstep-{user}-{_digest('|'.join(parts))}"
    folder = conf.live_folder() or default
    if folder.exists():
        _require_own(folder)
    return Store(folder)


def _require_own(folder: Path) -> None:
    status = folder.stat()
    if os.name == "posix" and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        raise ImproperlyConfigured(
            f"{folder} must belong to the user of this process, and only that user may write there: chmod 700, or "
            "name another one in LOCKSTEP_LAB_LIVE_FOLDER"
        )


def _shown_key(name: str, schedule: str) -> str:
    # Names may be longer, and have other characters, than keys of caches.
    return f"shown:{_digest(f'{name} {schedule}')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
