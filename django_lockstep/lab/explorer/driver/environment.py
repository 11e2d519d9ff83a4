"""What surrounds the actors: the exploring thread's connections, and Django's caches of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.apps import apps
from django.core import mail
from django.core.cache.backends import locmem
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_lockstep.lab.explorer.driver.hooks import Gate, Hooks, one_value
from django_lockstep.lab.explorer.driver.server import Server
from django_lockstep.lab.explorer.effects.catalog import Catalog, quote_literal
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.effects.sql import parse_cached
from django_lockstep.lab.explorer.tables.databases import is_forbidden
from django_lockstep.lab.wording import counted


class SetupMonitor(Gate):
    """Copies tables before this thread writes them, and lets its commits not wait for the disk, until `close`.

    A gate of this thread's connections, which stops nothing. The thread waits ``lock_timeout`` seconds for a lock of
    another session: all actors stand, and would release none. What it writes to a database whose rows may be needed
    ``require_disposable`` refuses.
    """

    def __init__(
        self,
        server: Callable[[str], Server],
        *,
        require_disposable: Callable[[BaseDatabaseWrapper], None],
        lock_timeout: float,
    ) -> None:
        self._server = server
        self._require_disposable = require_disposable
        self._settings = {"synchronous_commit": "off", "lock_timeout": f"{lock_timeout * 1000:.0f}"}
        self.before_actors = False
        """Whether what the thread does comes before the actors, so that it sees nothing of them."""
        self._watched: dict[str, tuple[Hooks, dict[str, str]]] = {}
        try:
            # No connection is opened here: Django's tests refuse databases that a test does not declare. One of another
            # test may be open.
            for wrapper in connections.all(initialized_only=True):
                if wrapper.connection is not None and wrapper.vendor == "postgresql" and not is_forbidden(wrapper):
                    self.connected(wrapper)
        except BaseException:  # or what the thread writes later would be copied into closed sessions
            self.close()
            raise

    def connected(self, wrapper: BaseDatabaseWrapper) -> None:
        """Monitor a connection that this thread has just opened, perhaps again."""
        if wrapper.alias in self._watched:
            self._watched[wrapper.alias][0].remove()
        self._server(wrapper.alias)  # before anything is sent: it claims the database
        before = {name: one_value(wrapper.connection, f"SHOW {name}") or "" for name in self._settings}
        self._watched[wrapper.alias] = Hooks(wrapper, self), before
        # set_up commits before every schedule, and nothing of it has to survive a crash.
        self._watched[wrapper.alias][0].send_out_of_band(_set(self._settings))

    def close(self) -> None:
        """Remove the hooks, and restore the connections' settings."""
        for hooks, before in self._watched.values():
            hooks.remove()
            hooks.send_out_of_band(_set(before))

    def before(self, operation: Operation) -> None:
        """Copy what is about to be written for the first time; note what is read of the actors' rows."""
        server = self._server(operation.alias)
        statement = parse_cached(operation, server.catalog)
        if not self.before_actors:
            server.catalog.note("read", statement.tables_read)
        if statement.may_write_any or statement.writes:
            self._require_disposable(connections[operation.alias])
            server.tables.save_for(statement)


def _set(settings: Mapping[str, str]) -> str:
    return "; ".join(f"SET {name} = {quote_literal(value)}" for name, value in settings.items())


# Django's own caches of rows: what one run has cached would keep the next one from asking the database.


class RowCaches:
    """Fills the caches of content types and sites from the database, as they are after a while in any process."""

    def __init__(self, alias: str, catalog: Catalog) -> None:
        self._filled = [(cache, dict(cache)) for cache in _filled(alias, catalog)]

    def restore(self) -> None:
        """Put the caches back as they were filled: a run may have cached rows that no longer exist."""
        for cache, filled in self._filled:
            cache.clear()
            cache.update(filled)

    def close(self) -> None:
        """Empty the caches: the code under test may have added to them."""
        for cache, _ in self._filled:
            cache.clear()


def _filled(alias: str, catalog: Catalog) -> Iterator[dict[Any, Any]]:
    if apps.is_installed("django.contrib.contenttypes"):
        from django.contrib.contenttypes.models import ContentType

        manager: Any = ContentType.objects
        # What is in it may come from other tests, whose rows are gone.
        manager.clear_cache()
        if catalog.get(ContentType._meta.db_table) is not None:
            for content_type in manager.using(alias):
                manager._add_to_cache(alias, content_type)
            yield manager._cache.setdefault(alias, {})
    if apps.is_installed("django.contrib.sites"):
        from django.contrib.sites.models import SITE_CACHE, Site

        SITE_CACHE.clear()
        if catalog.get(Site._meta.db_table) is not None:
            for site in Site._base_manager.using(alias):
                SITE_CACHE[site.pk] = SITE_CACHE[site.domain] = site
            yield SITE_CACHE


def describe_leftovers() -> str:
    """Say what earlier runs have left in the process that no run puts back: keys in local caches, and mails."""
    keys = sum(len(cache) for cache in vars(locmem)["_caches"].values())
    mails = len(getattr(mail, "outbox", ()))
    parts = [f"{counted(keys, 'key')} in locmem caches"] if keys else []
    parts += [f"{counted(mails, 'mail')} in mail.outbox"] if mails else []
    if not parts:
        return ""
    return f"When the run began there were {' and '.join(parts)}, which are not put back: clear them in set_up"
