"""The fixture ``race``: whether plain Django callables survive every interleaving of their SQL statements.

Does nothing in projects without Django: everything of the lab is imported when the fixture is used.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_lockstep.lab.explorer import Exploration, Run, Scenario

__all__ = ["RaceFixture", "race"]

Step = Callable[[Any], Any]

_TIMELINES = ("text", "json", "svg", "html")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the fixture."""
    group = parser.getgroup("race", "races on a real PostgreSQL")
    group.addoption(
        "--race-max-schedules",
        type=int,
        default=None,
        metavar="N",
        help="let each race run at most N schedules; one that needs more is incomplete and fails",
    )
    group.addoption(
        "--race-timeline",
        choices=_TIMELINES,
        default="text",
        help="how a failure shows what happened; svg and html go into a file that the failure names",
    )
    group.addoption(
        "--race-output",
        type=Path,
        default=None,
        metavar="DIR",
        help="where those files go (default: the test's tmp_path)",
    )


class RaceFixture:
    """Races callables and fails the test when they break; see the fixture `race`.

    ``timeline`` is text, json, svg or html; the latter two go into files in the folder that ``folder`` returns, which
    are called ``name`` and a number.
    """

    def __init__(
        self,
        *,
        max_schedules: int | None = None,
        timeline: str = "text",
        folder: Callable[[], Path] = Path.cwd,
        name: str = "race",
    ) -> None:
        self._max_schedules = max_schedules
        self._timeline = timeline
        self._folder = folder
        self._name = re.sub(r"[^\w.-]+", "-", name)

    def __call__(
        self,
        *actors: Step,
        set_up: Callable[[], Any],
        invariant: Callable[[Any], bool] | None = None,
        observe: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> Exploration:
        """Explore every interleaving, and fail the test with a timeline unless all end right.

        Each actor, a function or an ``async def``, is called with what ``set_up`` returned, in a thread and on a
        connection of its own; ``options`` are those of `explore`. Without an invariant the end has to be one that the
        actors reach one after the other.
        """
        from django_lockstep.lab.explorer import Scenario, explore

        scenario = Scenario(set_up=set_up, actors=actors, invariant=invariant, observe=observe)
        with _explorable():
            found = explore(scenario, **{"max_schedules": self._max_schedules, **options})
        if not found.ok:
            pytest.fail(self._report(scenario, found), pytrace=False)
        return found

    def replay(
        self,
        schedule: str,
        *actors: Step,
        set_up: Callable[[], Any],
        invariant: Callable[[Any], bool] | None = None,
        observe: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> Run:
        """Run one schedule, as a failure names it, and fail the test with its timeline if it ends wrong."""
        from django_lockstep.lab.explorer import Scenario, replay

        scenario = Scenario(set_up=set_up, actors=actors, invariant=invariant, observe=observe)
        with _explorable():
            run = replay(scenario, schedule, **options)
        if not run.holds:
            pytest.fail(self._shown(run, None), pytrace=False)
        return run

    def _report(self, scenario: Scenario, found: Exploration) -> str:
        """Return the verdict with the timeline of what went wrong, and how to see it again."""
        lines = [f"The race is {found.verdict}. {found.reason}"]
        if found.failure is not None:
            again = f'Again: race.replay("{found.failure.schedule}", ...) with the same actors'
            lines += ["", self._shown(found.failure, found), "", again]
        return "\n".join(lines)

    def _shown(self, run: Run, found: Exploration | None) -> str:
        """Return the timeline, or where it is."""
        from django_lockstep.lab.explorer import explain, svg, timeline
        from django_lockstep.lab.explorer.reports import Chapter, as_html, as_json

        if self._timeline == "text":
            return timeline(run)
        chapter = Chapter(name=self._name, exploration=found, runs=(run,), as_expected=False)
        if self._timeline == "json":
            return as_json([chapter])
        path = self._written(svg(run) if self._timeline == "svg" else as_html([chapter]))
        return f"{explain(run)}\nTimeline: {path}"

    def _written(self, text: str) -> Path:
        folder = self._folder()
        folder.mkdir(parents=True, exist_ok=True)
        names = (folder / f"{self._name}-{number}.{self._timeline}" for number in itertools.count(1))
        path = next(path for path in names if not path.exists())
        path.write_text(text, encoding="utf-8")
        return path


@contextmanager
def _explorable() -> Iterator[None]:
    """Fail the test in plain words where it cannot race."""
    from django_lockstep.lab.explorer import NotExplorable

    try:
        yield
    except NotExplorable as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def _race_sessions(django_db_setup: None) -> Iterator[None]:
    """Close what explorations keep before pytest-django drops the test database."""
    yield
    from django_lockstep.lab.explorer import close_idle_sessions

    close_idle_sessions()


@pytest.fixture
def race(request: pytest.FixtureRequest) -> RaceFixture:
    """Race callables against each other on committed data, as ``race(a, b, set_up=..., invariant=...)``."""
    try:
        request.getfixturevalue("transactional_db")
        request.getfixturevalue("_race_sessions")
    except pytest.FixtureLookupError:
        pytest.fail("The fixture race needs pytest-django, which is not installed or not active", pytrace=False)
    option = request.config.getoption
    return RaceFixture(
        max_schedules=option("--race-max-schedules"),
        timeline=option("--race-timeline"),
        folder=lambda: option("--race-output") or request.getfixturevalue("tmp_path"),
        name=request.node.name,
    )
