"""The worker process: one connection, and one task after the other."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from django_lockstep.lab.simulator.desk import Desk, Done, Failed, Flag

__all__ = ["Post", "main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Where a worker works."""

    alias: str
    """The database, as the settings name it."""
    database: str
    """The database's name as the parent uses it: under a test runner not the one of the settings."""
    session: str
    """The ``application_name`` of its connection, by which the server's view of it can be found."""


def main(post: Post, pipe: Connection[Any, Any], *, number: int, stop: Flag, beats: MutableSequence[int]) -> None:
    """Connect, say so, and do tasks until the parent hangs up; then leave as any process does."""
    # Ctrl-C reaches the whole process group; when to stop is the parent's to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, ConnectionError), pipe:
        try:
            with connected(post):
                pipe.send(Done(result=None))
                Desk(pipe, number=number, stop=stop, beats=beats).serve()
        except (EOFError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - the parent reports it
            pipe.send(Failed(reason=f"{type(error).__name__}: {error}"))


@contextlib.contextmanager
def connected(post: Post) -> Iterator[None]:
    """Set Django up and hold this process's connection to the parent's database."""
    import django
    from django.apps import apps
    from django.db import connections

    if not apps.ready:
        django.setup()
    connection = connections[post.alias]
    connection.settings_dict["NAME"] = post.database
    options = connection.settings_dict.get("OPTIONS") or {}
    connection.settings_dict["OPTIONS"] = {**options, "application_name": post.session}
    try:
        connection.ensure_connection()
        yield
    finally:
        connection.close()
        close_pool = getattr(connection, "close_pool", None)
        if close_pool is not None:
            close_pool()
