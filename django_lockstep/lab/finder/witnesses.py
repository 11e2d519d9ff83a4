"""Tests that keep a race from coming back: a test of the project, forked where the race was found."""

from __future__ import annotations

import inspect
import sys
import unittest
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS

from django_lockstep.lab.explorer import Exploration, timeline
from django_lockstep.lab.finder.calls import intercept_calls
from django_lockstep.lab.finder.committed import committed_tests
from django_lockstep.lab.finder.forks import Fork, RequestActor
from django_lockstep.lab.finder.pairings import Actor, Earlier, with_another_user, with_earlier, with_itself
from django_lockstep.lab.finder.requests import intercept

__all__ = ["raced"]

_SECONDS = 60.0


def raced(
    test: Any, method: str = "", *, call: str = "", number: int = 0, after: int | None = None, two_users: bool = False
) -> Callable[..., None]:
    """Return a test of pytest that runs another test, and races one of its requests at the place where it is sent.

    ``test`` is a function, or a class with the ``method``. ``number`` says which request, from 0; or which call of the
    function that ``call`` names, such as ``shop.services.withdraw``. It is raced with itself, with the one numbered
    ``after`` before it, or with the same by a copy of its user. The test fails with a timeline if a schedule ends as no
    serial order does, and if the other test does not come to the request. It commits, so it must not be in a
    transaction: it asks for pytest-django's ``transactional_db``.
    """
    place = _Place(call=call, number=number, after=after, two_users=two_users)
    body = _body(test, method)
    signature = inspect.signature(body)
    names = {*signature.parameters, "transactional_db"}

    def test_it(**fixtures: Any) -> None:
        given = {name: value for name, value in fixtures.items() if name in signature.parameters}
        with committed_tests(lambda: None), place.watching():
            body(**given)
        place.require_no_race()

    keyword = inspect.Parameter.KEYWORD_ONLY
    test_it.__signature__ = inspect.Signature([inspect.Parameter(name, keyword) for name in sorted(names)])  # type: ignore[attr-defined]
    test_it.pytestmark = [*_marks(test, method), pytest.mark.django_db(transaction=True)]  # type: ignore[attr-defined]
    return test_it


def _body(test: Any, method: str) -> Callable[..., Any]:
    if not isinstance(test, type):
        return test  # type: ignore[no-any-return]
    if not issubclass(test, unittest.TestCase):
        return getattr(test(), method)  # type: ignore[no-any-return]

    def run() -> None:
        test.setUpClass()
        try:
            test(method).debug()
        finally:
            test.tearDownClass()
            test.doClassCleanups()

    return run


def _marks(test: Any, method: str) -> list[pytest.Mark]:
    """Return the marks of the function, its class and its module, but for those that say how it uses the database."""
    owners = [getattr(test, method, None) if method else None, test, sys.modules[test.__module__]]
    found = [mark for owner in owners for mark in _listed(getattr(owner, "pytestmark", ()))]
    return [mark for mark in found if mark.name != "django_db"]


def _listed(marks: Any) -> list[Any]:
    return [getattr(mark, "mark", mark) for mark in (marks if isinstance(marks, list | tuple) else [marks])]


class _Place:
    """A request or a call of a test, and what racing it showed."""

    def __init__(self, *, call: str, number: int, after: int | None, two_users: bool) -> None:
        self._call = call
        self._number = number
        self._after = after
        self._two_users = two_users
        self._seen = 0
        self._earlier: Earlier | None = None
        self._found: Exploration | None = None

    def watching(self) -> AbstractContextManager[None]:
        """Race it when the test comes to it."""
        if self._call:
            return intercept_calls({self._call}, lambda name, call: self._reach(call))
        return intercept(self._on_request)

    def _on_request(self, handler: Any, environ: dict[str, Any], call_next: Any) -> Any:
        self._reach(RequestActor.of(environ, call_next))
        return call_next(environ)

    def _reach(self, actor: Actor) -> None:
        number, self._seen = self._seen, self._seen + 1
        if number == self._after:
            self._earlier = Earlier.note(actor, number=number, alias=DEFAULT_DB_ALIAS)
        if number == self._number:
            with self._paired(actor) as fork:
                self._found = fork.explore(seconds=_SECONDS)
            if self._earlier is not None:
                self._earlier.before.close()

    def _paired(self, actor: Actor) -> AbstractContextManager[Fork]:
        if self._earlier is not None:
            return with_earlier(self._earlier, actor, alias=DEFAULT_DB_ALIAS)
        if self._two_users and isinstance(actor, RequestActor):
            return with_another_user(actor, alias=DEFAULT_DB_ALIAS)
        return with_itself(actor, alias=DEFAULT_DB_ALIAS)

    def require_no_race(self) -> None:
        """Fail the test unless all schedules ended right."""
        found = self._found
        if found is None:
            pytest.fail(f"The test did not come to {self._call or 'its request'} number {self._number}", pytrace=False)
        if found.verdict != "nothing found":
            shown = f"\n\n{timeline(found.failure)}" if found.failure else ""
            pytest.fail(f"It races ({found.verdict}): {found.reason}{shown}", pytrace=False)
