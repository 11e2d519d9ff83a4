"""Tests that keep a race from coming back: a test of the project, forked where the race was found; and their files."""

from __future__ import annotations

import inspect
import os
import re
import sys
import unittest
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

from django_lockstep.lab.explorer import Exploration, timeline
from django_lockstep.lab.finder.confirm.committed import committed_tests
from django_lockstep.lab.finder.confirm.forks import Fork, Point, Points
from django_lockstep.lab.finder.confirm.pairings import (
    AGAINST,
    Earlier,
    copy_databases,
    put_back,
    with_earlier,
    with_moved,
)
from django_lockstep.lab.finder.confirm.transplants import Captured
from django_lockstep.lab.finder.findings import Against, Finding

if TYPE_CHECKING:
    import pytest

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
    after_call: str | None = None,
    against: Against = "",
    partner: tuple[Any, ...] = (),
    partner_call: str = "",
) -> Callable[..., None]:
    """Return a test that runs another test, and races one of its requests at the place where it is sent.

    For pytest it is a function of a module; if it runs test cases of unittest, also a method of a
    ``TransactionTestCase``, for Django's runner.

    ``test`` is a function, or a class with the ``method``. ``number`` says which request, from 0; or which call of the
    function that ``call`` names, such as ``shop.services.withdraw``. It is raced with itself, with the one numbered
    ``after`` before it (of the function ``after_call``, if that is another one; ``""`` is a request), with the same
    ``against`` what differs (``"another user"``, a copy of its own; ``"another object"``, another row of a table;
    ``"the other order"``, with the rows that it locks exchanged; ``"a lower limit"``, of what both count), or with one
    of another test: ``partner`` is that test, its method if it has one, and the number of the request, or of the call
    of ``partner_call``.
    The test fails with a timeline if a schedule ends as no serial order does, and if the other tests do not come to
    the requests. It commits, so it must not be in a transaction: a function asks for pytest-django's
    ``transactional_db``.
    """
    earlier = None if after is None else (call if after_call is None else after_call, after)
    place = _Place((call, number), earlier=earlier, against=against)
    main, *partners = [_Test(test, method), *([_Test(*partner[:-1])] if partner else [])]

    def test_it(*case: unittest.TestCase, **fixtures: Any) -> None:
        def run(item: _Test, watching: AbstractContextManager[None]) -> None:
            with item.set_up() as function, watching:
                function(**{name: fixtures[name] for name in item.fixtures()})

        with committed_tests():
            for of_partner in partners:
                with put_back():
                    run(of_partner, place.watching_partner((partner_call, partner[-1])))
            run(main, place.watching())
        place.require_no_race()

    keyword = inspect.Parameter.KEYWORD_ONLY
    names = sorted({"transactional_db", *main.fixtures()}.union(*(item.fixtures() for item in partners)))
    test_it.__signature__ = inspect.Signature([inspect.Parameter(name, keyword) for name in names])  # type: ignore[attr-defined]
    if "pytest" in sys.modules:  # projects on Django's runner may be without
        test_it.pytestmark = main.marks()  # type: ignore[attr-defined]
    return test_it


@dataclass(frozen=True, slots=True)
class _Test:
    """A test of the project: a function, or a class with the name of a method."""

    owner: Any
    method: str = ""

    @property
    def _is_unittest(self) -> bool:
        return isinstance(self.owner, type) and issubclass(self.owner, unittest.TestCase)

    def fixtures(self) -> list[str]:
        """Return the names of the fixtures that it asks for."""
        if self._is_unittest:
            return []
        body = getattr(self.owner, self.method) if self.method else self.owner
        # A method's first parameter is its object.
        return list(inspect.signature(body).parameters)[bool(self.method) :]

    @contextmanager
    def set_up(self) -> Iterator[Callable[..., Any]]:
        """Set up its class; what its methods set up belongs to the test."""
        owner: Any = self.owner
        if self._is_unittest:
            owner.setUpClass()
            try:
                # It raises what the test raises; run() would keep that in a result that nobody reads.
                yield owner(self.method).debug
            finally:
                owner.tearDownClass()
                owner.doClassCleanups()
        elif not self.method:
            yield owner
        else:
            instance = owner()
            for name in ("setup_class", "setup_method"):
                _call_hook(instance, name, self.method)
            try:
                yield getattr(instance, self.method)
            finally:
                for name in ("teardown_method", "teardown_class"):
                    _call_hook(instance, name, self.method)

    def marks(self) -> list[pytest.Mark | pytest.MarkDecorator]:
        """Return the marks of function, class and module; the databases that it uses, but committed."""
        import pytest

        body = getattr(self.owner, self.method, None) if self.method else None
        owners = [body, self.owner, sys.modules[self.owner.__module__]]
        lists: Any = [getattr(owner, "pytestmark", ()) for owner in owners]
        flat = chain.from_iterable(marks if isinstance(marks, list | tuple) else [marks] for marks in lists)
        marks = [getattr(mark, "mark", mark) for mark in flat]
        named = (mark.kwargs.get("databases") for mark in marks if mark.name == "django_db")
        databases = self.owner.databases if self._is_unittest else next(filter(None, named), None)
        others = (mark for mark in marks if mark.name != "django_db")
        return [*others, pytest.mark.django_db(transaction=True, databases=databases)]


def _call_hook(instance: Any, name: str, method: str) -> None:
    """Call what pytest calls of a class; methods may ask for what is tested."""
    hook = getattr(instance, name, None)
    if hook is not None:
        hook(*[getattr(instance, method)][: len(inspect.signature(hook).parameters)])


class _Place:
    """A request or a call of a test, and what racing it showed."""

    def __init__(self, place: _Numbered, *, earlier: _Numbered | None, against: Against) -> None:
        self._place = place
        self._after = earlier
        self._against = against
        self._earlier: Earlier | None = None
        self._needs_partner = False
        self._partner: Captured | None = None
        self._exploration: Exploration | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Race it when the test comes to it."""
        names = {name for name, _ in (self._place, self._after or self._place) if name}
        try:
            with Points(self._reach).watched(names):
                yield
        finally:
            # Also if the test did not come to what it was to be raced with.
            if self._earlier is not None:
                self._earlier.before.close()

    def watching_partner(self, place: _Numbered) -> AbstractContextManager[None]:
        """Keep the request or call when its test makes it."""
        self._needs_partner = True

        def reach(point: Point) -> None:
            if (point.call, point.number) == place:
                with put_back():
                    self._partner = Captured.of(point.actor)

        return Points(reach).watched({place[0]} - {""})

    def _reach(self, point: Point) -> Callable[[], None] | None:
        if (point.call, point.number) == self._place and bool(self._partner) == self._needs_partner:
            with self._paired(point) as fork:
                self._exploration = fork.explore(seconds=_SECONDS)
        if (point.call, point.number) != self._after:
            return None
        self._earlier = Earlier(point, copy_databases())
        return self._earlier.before.note_new

    def _paired(self, point: Point) -> AbstractContextManager[Fork]:
        if self._earlier is not None:
            return with_earlier(self._earlier, point.actor)
        if self._partner is not None:
            return with_moved(self._partner.moved_to, point.actor)
        return AGAINST[self._against].pair(point.actor)

    def require_no_race(self) -> None:
        """Fail the test unless all schedules ended right."""
        exploration, (call, number) = self._exploration, self._place
        if exploration is None:
            _fail(f"The test did not reach {call or 'its request'} number {number}")
        if exploration.verdict != "nothing found":
            shown = f"\n\n{timeline(exploration.failure)}" if exploration.failure else ""
            _fail(f"It races ({exploration.verdict}): {exploration.reason}{shown}")


def _fail(message: str) -> NoReturn:
    """Fail the test; pytest shows the message alone, without the code of this module."""
    if "PYTEST_CURRENT_TEST" in os.environ:
        import pytest

        pytest.fail(message, pytrace=False)
    raise AssertionError(message)


# The text of a test file that reproduces a confirmed race in its project.


@dataclass(frozen=True, slots=True)
class TestPlace:
    """Where a test is defined."""

    __test__ = False  # pytest: this is none

    module: str
    function: str
    owner: str = ""
    """The class, if it is a method."""
    fixtures: tuple[str, ...] = ()
    """Functions of the module that are fixtures of the test."""
    is_complete: bool = True
    """Whether another file can run it: fixtures of a class stay in the class."""
    is_parametrized: bool = False
    """Whether marks of the function give it values; another test that runs it has no such marks."""
    is_case: bool = False
    """Whether it is a method of a unittest.TestCase, which Django's runner can run, too."""

    @classmethod
    def of(cls, item: Any) -> TestPlace:
        """Return the place of an item of pytest."""
        module, owner = getattr(item, "module", None), getattr(item, "cls", None)
        if module is None:  # such as a doctest
            return cls("", item.name, is_complete=False)
        import pytest  # projects on Django's runner may be without

        # Those of the module and of the class.
        here = item.getparent(pytest.Module).nodeid
        definitions = chain.from_iterable(item._fixtureinfo.name2fixturedefs.values())
        fixtures = {fixture.func.__name__ for fixture in definitions if fixture.baseid.startswith(here)}
        return cls(
            module.__name__,
            getattr(item, "originalname", None) or item.name,
            owner.__qualname__ if owner is not None else "",
            tuple(sorted(name for name in fixtures if vars(module).get(name) is not None)),
            is_complete=not any(owner and hasattr(owner, name) for name in fixtures),
            is_parametrized=item.get_closest_marker("parametrize") is not None,
            is_case=isinstance(owner, type) and issubclass(owner, unittest.TestCase),
        )

    @classmethod
    def of_case(cls, test: Any) -> TestPlace:
        """Return the place of a test case of unittest."""
        return cls(type(test).__module__, test._testMethodName, type(test).__qualname__, is_case=True)

    @property
    def package(self) -> str:
        return self.module.rpartition(".")[0]

    @property
    def short(self) -> str:
        """The module's name in a file that imports it from its package."""
        return self.module.rpartition(".")[2]

    def named(self, module: str) -> str:
        """Return the test as arguments, for a file in which its module has this name."""
        return f'{module}.{self.owner}, "{self.function}"' if self.owner else f"{module}.{self.function}"

    def goes_with(self, partner: TestPlace) -> bool:
        """Whether one file can run the other test before this one: their fixtures must not have the same names."""
        shared = self.module != partner.module and set(self.fixtures) & set(partner.fixtures)
        return partner.is_complete and not partner.is_parametrized and not shared


def write_test_file(finding: Finding, places: Mapping[str, TestPlace]) -> str:
    """Return the file; it is to stand beside the test that it forks, whose fixtures it uses.

    Empty if the race is not confirmed, and if the file could not run.
    """
    place, partner = places[finding.test], places[finding.partner_test] if finding.partner_test else None
    if finding.verdict != "confirmed" or not place.is_complete or (partner and not place.goes_with(partner)):
        return ""
    alias = "partner_tests" if partner and place.short == partner.short and place.module != partner.module else ""
    is_of_another = finding.after is not None and finding.after_call != finding.call
    options = [
        f'call="{finding.call}"' if finding.call else "",
        f"number={finding.number}" if finding.number else "",
        f"after={finding.after}" if finding.after is not None else "",
        f'after_call="{finding.after_call}"' if is_of_another else "",
        f"against={finding.against!r}" if finding.against else "",
        f"partner=({partner.named(alias or partner.short)}, {finding.partner_number})" if partner else "",
        f'partner_call="{finding.partner_call}"' if finding.partner_call else "",
    ]
    imported = [*_imports(place), *(_imports(partner, alias) if partner else ())]
    candidate = finding.candidate
    words = re.findall(r"[a-z0-9]+", candidate.unit.rpartition(".")[2].lower() or candidate.unit)
    test = f"raced({', '.join([place.named(place.short), *filter(None, options)])})"
    lines = [
        f'"""{candidate.kind} in {candidate.unit}: fails as long as the race is there."""',
        "",
        "from django_lockstep.lab.finder.confirm.witnesses import raced",
        *dict.fromkeys(imported),
        "",
        f"test_{'_'.join(words)}_does_not_race = {test}",
    ]
    if place.is_case and (partner is None or partner.is_case):
        lines[2:2] = ["from django.test import TransactionTestCase"]
        lines[-1:] = [
            "",
            f"class {''.join(map(str.capitalize, words))}RaceTests(TransactionTestCase):",
            f"    databases = {place.short}.{place.owner}.databases",
            f"    test_it_does_not_race = {test}",
        ]
    return "\n".join([*lines, ""])


def _imports(place: TestPlace, alias: str = "") -> Iterator[str]:
    renamed = f" as {alias}" if alias else ""
    yield f"from {place.package} import {place.short}{renamed}" if place.package else f"import {place.short}{renamed}"
    if place.fixtures:
        yield f"from {place.module} import {', '.join(place.fixtures)}  # noqa: F401  # fixtures"
