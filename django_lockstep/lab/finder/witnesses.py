"""Tests that keep a race from coming back: a test of the project, forked where the race was found."""

from __future__ import annotations

import inspect
import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from django_lockstep.lab.explorer import Exploration, timeline
from django_lockstep.lab.finder.calls import intercept_calls
from django_lockstep.lab.finder.committed import committed_tests
from django_lockstep.lab.finder.forks import Fork, RequestActor
from django_lockstep.lab.finder.pairings import Earlier, with_another_user, with_earlier, with_itself
from django_lockstep.lab.finder.points import Point, Points
from django_lockstep.lab.finder.requests import intercept

__all__ = ["raced"]

_SECONDS = 60.0
_Numbered = tuple[str, int]
"""A function, or nothing for a request, and which call or request of a test it is."""


def raced(
    test: Any,
    method: str = "",
    *,
    call: str = "",
    number: int = 0,
    after: int | None = None,
    after_call: str = "",
    two_users: bool = False,
) -> Callable[..., None]:
    """Return a test of pytest that runs another test, and races one of its requests at the place where it is sent.

    ``test`` is a function, or a class with the ``method``. ``number`` says which request, from 0; or which call of the
    function that ``call`` names, such as ``shop.services.withdraw``. It is raced with itself, with the one numbered
    ``after`` before it (of the function ``after_call``, if that is another one), or with the same by a copy of its
    user. The test fails with a timeline if a schedule ends as no serial order does, and if the other test does not come
    to the request. It commits, so it must not be in a transaction: it asks for pytest-django's ``transactional_db``.
    """
    earlier = None if after is None else (after_call or call, after)
    place = _Place((call, number), earlier=earlier, two_users=two_users)
    body = getattr(test, method) if method and not _is_unittest(test) else test
    # A method's first parameter is its object.
    wanted = [] if _is_unittest(test) else list(inspect.signature(body).parameters)[bool(method) :]

    def test_it(**fixtures: Any) -> None:
        given = {name: fixtures[name] for name in wanted}
        with committed_tests(), _instance(test, method) as function, place.watching():
            function(**given)
        place.require_no_race()

    keyword = inspect.Parameter.KEYWORD_ONLY
    names = sorted({*wanted, "transactional_db", "_race_sessions"})
    test_it.__signature__ = inspect.Signature([inspect.Parameter(name, keyword) for name in names])  # type: ignore[attr-defined]
    test_it.pytestmark = _marks(test, method)  # type: ignore[attr-defined]
    return test_it


def _is_unittest(test: Any) -> bool:
    return isinstance(test, type) and issubclass(test, unittest.TestCase)


@contextmanager
def _instance(test: Any, method: str) -> Iterator[Callable[..., Any]]:
    """Set up the test's class; what its methods set up belongs to the test."""
    if not isinstance(test, type):
        yield test
    elif issubclass(test, unittest.TestCase):
        test.setUpClass()
        try:
            yield test(method).debug
        finally:
            test.tearDownClass()
            test.doClassCleanups()
    else:
        instance: Any = test()
        for name in ("setup_class", "setup_method"):
            _call_hook(instance, name, method)
        try:
            yield getattr(instance, method)
        finally:
            for name in ("teardown_method", "teardown_class"):
                _call_hook(instance, name, method)


def _call_hook(instance: Any, name: str, method: str) -> None:
    """Call what pytest calls of a class; methods may ask for what is tested."""
    hook = getattr(instance, name, None)
    if hook is not None:
        hook(*[getattr(instance, method)][: len(inspect.signature(hook).parameters)])


def _marks(test: Any, method: str) -> list[pytest.Mark | pytest.MarkDecorator]:
    """Return the marks of the function, its class and its module; the databases that it uses, but committed."""
    owners = [getattr(test, method, None) if method else None, test, sys.modules[test.__module__]]
    found = [mark for owner in owners for mark in _listed(getattr(owner, "pytestmark", ()))]
    named = (mark.kwargs.get("databases") for mark in found if mark.name == "django_db")
    databases = test.databases if _is_unittest(test) else next(filter(None, named), None)
    others = (mark for mark in found if mark.name != "django_db")
    return [*others, pytest.mark.django_db(transaction=True, databases=databases)]


def _listed(marks: Any) -> list[Any]:
    return [getattr(mark, "mark", mark) for mark in (marks if isinstance(marks, list | tuple) else [marks])]


class _Place:
    """A request or a call of a test, and what racing it showed."""

    def __init__(self, place: _Numbered, *, earlier: _Numbered | None, two_users: bool) -> None:
        self._place = place
        self._after = earlier
        self._two_users = two_users
        self._earlier: Earlier | None = None
        self._found: Exploration | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Race it when the test comes to it."""
        points = Points(self._reach)
        names = {name for name, _ in (self._place, self._after or self._place) if name}
        try:
            with intercept(points.on_request), intercept_calls(names, points.on_call):
                yield
        finally:
            # Also if the test did not come to what it was to be raced with.
            if self._earlier is not None:
                self._earlier.before.close()

    def _reach(self, point: Point) -> None:
        if (point.call, point.number) == self._after:
            self._earlier = Earlier.note(point)
        if (point.call, point.number) == self._place:
            with self._paired(point) as fork:
                self._found = fork.explore(seconds=_SECONDS)

    def _paired(self, point: Point) -> AbstractContextManager[Fork]:
        if self._earlier is not None:
            return with_earlier(self._earlier, point.actor)
        if self._two_users and isinstance(point.actor, RequestActor):
            return with_another_user(point.actor)
        return with_itself(point.actor)

    def require_no_race(self) -> None:
        """Fail the test unless all schedules ended right."""
        found, (call, number) = self._found, self._place
        if found is None:
            pytest.fail(f"The test did not come to {call or 'its request'} number {number}", pytrace=False)
        if found.verdict != "nothing found":
            shown = f"\n\n{timeline(found.failure)}" if found.failure else ""
            pytest.fail(f"It races ({found.verdict}): {found.reason}{shown}", pytrace=False)
