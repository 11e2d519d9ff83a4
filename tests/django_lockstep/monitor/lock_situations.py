"""Sessions that wait for each other, to be reported."""

import io
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from django.core.management import call_command
from django.db import connection, connections
from django.db.models import Model

from django_lockstep.monitor import Wait
from django_lockstep.monitor.trees import Node
from tests.support.sessions import PATIENCE, Session

ODD = '"My ""odd"" table, 100%"'


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def lock(model: type[Model], pk: Any) -> None:
    list(model._default_manager.select_for_update(no_key=True).filter(pk=pk))


class LockSituation:
    """Sessions by application name, each in a transaction of its own until the situation ends."""

    def __init__(self, open_session: Callable[[], Session]) -> None:
        self._open_session = open_session
        self._sessions: list[Session] = []

    def hold(self, name: str, function: Callable[..., Any], *args: Any, begin: bool = True) -> Session:
        """Run the function in a new session that then is idle."""
        session = self._open_session()
        self._sessions.append(session)
        session.run(execute, f"SET application_name = '{name}'")
        if begin:
            session.begin()
        session.run(function, *args)
        return session

    def wait(self, name: str, function: Callable[..., Any], *args: Any, begin: bool = True) -> "Future[Any]":
        """Run the function in a new session that has to wait."""
        return self.go_on(self.hold(name, lambda: None, begin=begin), function, *args)

    def go_on(self, session: Session, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        """Run the function in a session of the situation that has to wait for it."""
        future = session.start(function, *args)
        session.wait_until_blocked()
        return future

    def end(self) -> None:
        """Close all sessions, each as soon as its own statement is through."""
        for closing in [session.start(connections.close_all) for session in self._sessions]:
            closing.result(PATIENCE)


@contextmanager
def role(name: str) -> Iterator[None]:
    execute(f"SET ROLE {name}")
    try:
        yield
    finally:
        execute("RESET ROLE")


def run(**options: Any) -> str:
    out = io.StringIO()
    call_command("lock_report", stdout=out, no_color=True, **options)
    return out.getvalue()


def values_of(wait: Wait, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(wait, name) for name in names)


def shape(nodes: list[Node]) -> list[Any]:
    return [(node.session.application, node.behind, shape(node.children)) for node in nodes]
