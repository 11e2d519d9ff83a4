"""The fixture ``race``: whether plain Django callables survive every interleaving of their SQL statements.

Does nothing in projects without Django: everything of the lab is imported when the fixture is used.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_lockstep.lab.explorer import Exploration, Run

__all__ = ["RaceFixture", "race"]

Step = Callable[[Any], Any]
Invariant = Callable[..., bool | None]
_Found = TypeVar("_Found")

_PROPERTIES = ("race_schedules", "race_outcomes", "race_seconds")
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
    group.addoption(
        "--race-width",
        type=int,
        default=None,
        metavar="N",
        help="columns of timelines in text (default: the terminal's)",
    )
    group.addoption(
        "--race-verbose", action="store_true", help="list at the end the races that hold, with their numbers"
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List the races that hold, where asked for; the numbers are properties of their tests, in reports, too."""
    if not config.getoption("--race-verbose"):
        return
    from django_lockstep.lab.explorer.text_width import counted

    terminalreporter.section("races that hold")
    for report in terminalreporter.stats.get("passed", ()):
        values = [value for name, value in report.user_properties if name in _PROPERTIES]
        for schedules, outcomes, seconds in zip(values[::3], values[1::3], values[2::3], strict=False):
            numbers = f"{counted(schedules, 'schedule')}, {counted(outcomes, 'outcome')}, {seconds} s"
            terminalreporter.write_line(f"{report.nodeid}: {numbers}")


class RaceFixture:
    """Races callables and fails the test when they break; see the fixture `race`.

    ``timeline`` is text, json, svg or html; the latter two go into files in the folder that ``folder`` returns, which
    are called ``name`` and a number. ``width`` is how many columns text may have, by default the terminal's. ``record``
    is given the numbers of each race.
    """

    def __init__(
        self,
        *,
        max_schedules: int | None = None,
        timeline: str = "text",
        folder: Callable[[], Path] = Path.cwd,
        name: str = "race",
        width: int | None = None,
        record: Callable[[str, object], None] = lambda name, value: None,
    ) -> None:
        self._max_schedules = max_schedules
        self._timeline = timeline
        self._folder = folder
        self._name = re.sub(r"[^\w.-]+", "-", name)
        self._width = width or shutil.get_terminal_size().columns
        self._record = record

    def __call__(
        self,
        *actors: Step | Mapping[str, Step],
        set_up: Callable[[], Any],
        invariant: Invariant | None = None,
        observe: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> Exploration:
        """Explore every interleaving, and fail the test with a timeline unless all end right.

        Each actor, a function or an ``async def``, is called with what ``set_up`` returned, in a thread and on a
        connection of its own. Functions with different names are called by them; a mapping gives them other names.
        ``options`` are those of `explore`. Without an invariant the end has to be one that the actors reach one after
        the other, with the same results.
        """
        from django_lockstep.lab.explorer import Scenario, explore

        scenario = Scenario(set_up=set_up, actors=_named(actors), invariant=invariant, observe=observe)
        found = _in_plain_words(lambda: explore(scenario, **{"max_schedules": self._max_schedules, **options}))
        numbers = (found.schedules, len(found.outcomes), round(found.seconds, 3))
        for name, value in zip(_PROPERTIES, numbers, strict=True):
            self._record(name, value)
        if not found.ok:
            pytest.fail(self._report(found), pytrace=False)
        return found

    def replay(
        self,
        schedule: str,
        *actors: Step | Mapping[str, Step],
        set_up: Callable[[], Any],
        invariant: Invariant | None = None,
        observe: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> Run:
        """Run one schedule, as a failure names it, and fail the test with its timeline if it ends wrong."""
        from django_lockstep.lab.explorer import Scenario, replay

        scenario = Scenario(set_up=set_up, actors=_named(actors), invariant=invariant, observe=observe)
        run = _in_plain_words(lambda: replay(scenario, schedule, **options))
        if not run.holds:
            pytest.fail(self._shown(run, None), pytrace=False)
        return run

    def _report(self, found: Exploration) -> str:
        """Return the verdict with the timeline of what went wrong, and how to see it again."""
        from django_lockstep.lab.explorer.reports import summary

        first, *more = summary(found)
        lines = [f"The race is {found.verdict}: {first}", *more]
        if found.failure is not None:
            again = f'Again: race.replay("{found.failure.schedule}", ...) with the same actors'
            lines += ["", self._shown(found.failure, found), "", again]
        return "\n".join(lines)

    def _shown(self, run: Run, found: Exploration | None) -> str:
        """Return the timeline, or where it is."""
        from django_lockstep.lab.explorer import explain, svg, timeline
        from django_lockstep.lab.explorer.reports import Chapter, as_html, as_json
        from django_lockstep.lab.explorer.timelines import fitting_width

        if self._timeline == "text":
            return timeline(run, width=fitting_width(self._width, run))
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


def _named(actors: Sequence[Step | Mapping[str, Step]]) -> Mapping[str, Step] | Sequence[Step]:
    """Return the actors by the names of their functions, where these differ; a mapping as it is."""
    if len(actors) == 1 and isinstance(actors[0], Mapping):
        return actors[0]
    functions: list[Any] = list(actors)
    names = [str(getattr(function, "__name__", "")) for function in functions]
    return (
        dict(zip(names, functions, strict=True)) if len({*filter(str.isidentifier, names)}) == len(names) else functions
    )


def _in_plain_words(run: Callable[[], _Found]) -> _Found:
    """Return what came of it; fail the test in plain words where it cannot race, or a schedule cannot be run."""
    from django_lockstep.lab.explorer import ExplorerError

    try:
        return run()
    except ExplorerError as error:
        refusal = str(error)
    # Outside of the except clause, so that pytest shows no traceback of ours.
    pytest.fail(refusal, pytrace=False)


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
        request.getfixturevalue("django_db_blocker")
    except pytest.FixtureLookupError:
        pytest.fail("The fixture race needs pytest-django, which is not installed or not active", pytrace=False)
    if request.node.get_closest_marker("django_db") is None and "transactional_db" not in request.fixturenames:
        pytest.fail(
            "A race needs committed data: mark the test with @pytest.mark.django_db(transaction=True)", pytrace=False
        )
    request.getfixturevalue("transactional_db")
    request.getfixturevalue("_race_sessions")
    option = request.config.getoption
    return RaceFixture(
        max_schedules=option("--race-max-schedules"),
        timeline=option("--race-timeline"),
        folder=lambda: option("--race-output") or request.getfixturevalue("tmp_path"),
        name=request.node.name,
        width=option("--race-width"),
        # Not the fixture record_property: it warns where --junitxml is given, although the report has the properties.
        record=lambda name, value: request.node.user_properties.append((name, value)),
    )
