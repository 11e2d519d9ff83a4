"""The pytest fixture ``race``: runs Django callables through every interleaving of their SQL statements.

It has no effect in projects without Django: the lab is imported when the fixture is used.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from _pytest.logging import LogCaptureHandler

from django_lockstep.lab.finder import plugin as finder

if TYPE_CHECKING:
    from django_lockstep.lab.explorer import Exploration, Response, Run
    from django_lockstep.lab.scenario import ActorFunction, Invariant, Scenario

_Result = TypeVar("_Result")
_PROPERTIES = ("race_verdict", "race_schedules", "race_outcomes", "race_seconds")
_ANNOTATION = "race_annotation"
MISSED = 10
"""pytest's exit status if a search has missed an outcome."""
_TESTS = r"[/\\]tests?[/\\]|[/\\](tests|conftest|test_\w+|\w+_test)\.py$"
"""Paths of tests and their helpers, whose own lines the runtime checks do not report: they wait as they like."""
_TIMELINES = ("text", "svg", "html")
_NUMBERS = {
    "--race-max-schedules": "run at most N schedules for each race; a race that needs more is incomplete and fails",
    "--race-audit": "random walks that check a search that would hold (default: the setting LOCKSTEP_LAB_AUDIT, 20)",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("race", "races on a real PostgreSQL")
    for name, text in _NUMBERS.items():
        group.addoption(name, type=int, default=None, metavar="N", help=text)
    group.addoption(
        "--race-timeline",
        choices=_TIMELINES,
        default="text",
        help="format of a failure's timeline; svg and html are written to a file that the failure names",
    )
    group.addoption(
        "--race-output",
        type=Path,
        default=None,
        metavar="DIR",
        help="folder for these files (default: the test's tmp_path; race-reports in the root folder if CI is set)",
    )
    group.addoption("--race-verbose", action="store_true", help="at the end list the races that passed")
    group.addoption(
        "--lockstep-warn",
        choices=("raise", "log"),
        default=None,
        help="report what must not happen while a transaction is open, at its line: as an error, or in the log",
    )
    finder.add_options(group)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest captures what is printed
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    finder.name_files_by_equals_signs(early_config)
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    finder.register(config)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Annotate broken races for GitHub Actions, and list those that passed, with ``--race-verbose``.

    Both are read from properties of the tests, which xdist's workers send along.
    """
    for report in terminalreporter.stats.get("failed", ()):
        for text in [value for name, value in report.user_properties if name == _ANNOTATION]:
            terminalreporter.write_line(text)
    if not config.getoption("--race-verbose"):
        return
    from django_lockstep.lab.wording import counted

    terminalreporter.section("races that passed")
    for report in terminalreporter.stats.get("passed", ()):
        values = [value for name, value in report.user_properties if name in _PROPERTIES]
        columns = (values[first :: len(_PROPERTIES)] for first in range(len(_PROPERTIES)))
        for verdict, schedules, outcomes, seconds in zip(*columns, strict=False):
            numbers = f"{counted(schedules, 'schedule')}, {counted(outcomes, 'outcome')}, {seconds} s"
            terminalreporter.write_line(f"{report.nodeid}: {verdict}, {numbers}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    mode = item.config.getoption("--lockstep-warn")
    if mode is None:
        return (yield)
    from django_lockstep.runtime_checks import runtime_checks

    with runtime_checks(mode, except_in=_TESTS):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End with a status of its own if a search has missed an outcome: no other race's verdict is to be trusted then."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    failed = reporter.stats.get("failed", ()) if reporter is not None else ()
    if any(("race_verdict", "missed") in report.user_properties for report in failed):
        session.exitstatus = MISSED


@dataclass(kw_only=True)
class RaceFixture:
    """Races callables, and fails the test if the race does not hold; see the fixture `race`."""

    max_schedules: int | None = None
    audit: int | None = None
    timeline: str = "text"
    """Text, svg or html; the latter two are written to files."""
    folder: Callable[[], Path] = Path.cwd
    """Returns the folder of these files."""
    name: str = "race"
    """What they are called, with a number."""
    record: Callable[[str, object], None] = lambda name, value: None
    """Called with the numbers of each race."""
    page: bool = False
    """Whether a failure is written as HTML in any case."""
    capture: Any = None
    """pytest's capture manager, if what is printed is captured."""

    def __call__(
        self,
        *actors: ActorFunction | Mapping[str, ActorFunction],
        set_up: Callable[[], Any] | None = None,
        invariant: Invariant | None = None,
        observe: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Exploration:
        """Explore every interleaving, and fail the test with a timeline unless all end right.

        With ``directed`` only those around the actors' writes: the test passes where nothing was found in them.

        Each actor, a function or an ``async def``, is called with what ``set_up`` returned, in its own thread and on
        its own connection; without ``set_up`` with nothing, and with the rows that the test has made. Actors are named
        after their functions if these names differ; a mapping gives them other names. ``options`` are those of
        `explore`. Without an invariant, the final state and the results must be those of running the actors one after
        the other, in some order. With ``processes`` or ``cluster`` it explores scratch databases, which have none of
        the test's rows, and not the test database.
        """
        from django_lockstep.lab.explorer import Scenario

        scenario = Scenario(set_up=set_up, actors=_name_actors(actors), invariant=invariant, observe=observe)
        with _ScheduleOutput(scenario.set_up, self.capture) as output:
            options = {"max_schedules": self.max_schedules, "audit": self.audit, **options}
            scenario = replace(scenario, set_up=output)
            exploration = _fail_on_refusal(lambda: _explore(scenario, options))
            if exploration.passed:
                output.clear()
        numbers = (exploration.verdict, exploration.schedules, len(exploration.outcomes), round(exploration.seconds, 3))
        for name, value in zip(_PROPERTIES, numbers, strict=True):
            self.record(name, value)
        if not exploration.passed:
            pytest.fail(self._report(exploration), pytrace=False)
        return exploration

    def replay(
        self,
        schedule: str,
        *actors: ActorFunction | Mapping[str, ActorFunction],
        set_up: Callable[[], Any] | None = None,
        invariant: Invariant | None = None,
        observe: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Run:
        """Run one schedule, as a failure names it, and fail the test with its timeline if it ends wrong."""
        from django_lockstep.lab.explorer import Scenario, replay

        scenario = Scenario(set_up=set_up, actors=_name_actors(actors), invariant=invariant, observe=observe)
        with _ScheduleOutput(scenario.set_up, self.capture) as output:
            scenario = replace(scenario, set_up=output)
            run = _fail_on_refusal(lambda: replay(scenario, schedule, **options))
        if not run.holds:
            pytest.fail(self._timeline_of(run, None), pytrace=False)
        return run

    def request(self, method: Callable[..., Any], url: Any, *args: Any, **options: Any) -> Callable[[Any], Response]:
        """Return an actor that sends a request: ``race.request(client.post, url, data)``; see `request_actor`."""
        from django_lockstep.lab.explorer import request_actor

        return request_actor(method, url, *args, **options)

    def _report(self, exploration: Exploration) -> str:
        """Return the verdict with the timeline of the failure, and how to replay it."""
        from django_lockstep.lab.explorer.render.reports import summary_lines

        first, *more = summary_lines(exploration)
        lines = [f"The race is {exploration.verdict}: {first}", *more]
        if exploration.failure is not None:
            again = f'To replay: race.replay("{exploration.failure.schedule}", ...) with the same actors'
            lines += ["", self._timeline_of(exploration.failure, exploration), "", again]
        return "\n".join(lines)

    def _timeline_of(self, run: Run, exploration: Exploration | None) -> str:
        """Return the timeline, or the path of the file that it was written to."""
        from django_lockstep.lab.explorer import explain, svg, timeline
        from django_lockstep.lab.explorer.render import reports
        from django_lockstep.lab.explorer.render.timelines import fitting_width

        report = reports.RaceReport(name=self.name, exploration=exploration, runs=(run,), as_expected=False)
        for check in reports.check_results([report]) if os.environ.get("GITHUB_ACTIONS") else ():
            self.record(_ANNOTATION, reports.as_annotation(check))
        width = fitting_width(shutil.get_terminal_size().columns, run)
        lines = [timeline(run, width=width) if self.timeline == "text" else explain(run)]
        if self.timeline == "svg":
            lines.append(f"Timeline: {self._write_file(svg(run), 'svg')}")
        if self.timeline == "html" or self.page:
            lines.append(f"Timeline: {self._write_file(reports.as_html([report]), 'html')}")
        return "\n".join(lines)

    def _write_file(self, text: str, form: str) -> Path:
        folder, name = self.folder(), re.sub(r"[^\w.-]+", "-", self.name)
        folder.mkdir(parents=True, exist_ok=True)
        names = (folder / f"{name}-{number}.{form}" for number in itertools.count(1))
        path = next(path for path in names if not path.exists())
        path.write_text(text, encoding="utf-8")
        return path


class _ScheduleOutput(AbstractContextManager["_ScheduleOutput"]):
    """A set-up that first removes what the schedule before has logged and printed from what pytest has captured."""

    def __init__(self, set_up: Callable[[], Any], capture: Any) -> None:
        self._set_up = set_up
        handlers = [handler for handler in logging.getLogger().handlers if isinstance(handler, LogCaptureHandler)]
        self._captured = [(handler, len(handler.records), handler.stream.tell()) for handler in handlers]
        self._capture = capture if capture is not None and capture.is_globally_capturing() else None
        self._printed = self._read()

    def __call__(self) -> Any:
        self.clear()
        return self._set_up()

    def __reduce__(self) -> tuple[Any, ...]:
        # For other processes, whose output pytest does not capture.
        return functools.partial, (self._set_up,)

    def __exit__(self, *error: object) -> None:
        # Reading has emptied pytest's files.
        for stream, before, since in zip((sys.stdout, sys.stderr), self._printed, self._read(), strict=True):
            stream.write(before + since)

    def _read(self) -> tuple[str, str]:
        return tuple(self._capture.read_global_capture()) if self._capture is not None else ("", "")

    def clear(self) -> None:
        """Remove what was captured since the race began."""
        self._read()
        for handler, records, position in self._captured:
            del handler.records[records:]
            handler.stream.truncate(position)
            handler.stream.seek(position)


def _explore(scenario: Scenario, options: Mapping[str, Any]) -> Exploration:
    from django_lockstep.lab.explorer import explore
    from django_lockstep.lab.explorer.tables.scratch import scratch_databases

    if unknown := sorted(options.keys() - inspect.signature(explore).parameters.keys()):
        raise TypeError(f"race() has no argument {', '.join(unknown)}; beside its own it has those of explore()")
    alone = options.get("processes", 1) == 1 and options.get("cluster") is None
    # Each process has a database of its own, and a test database cannot be copied while the test is connected to it.
    with nullcontext() if alone else scratch_databases():
        return explore(scenario, **options)


def _name_actors(
    actors: Sequence[ActorFunction | Mapping[str, ActorFunction]],
) -> Mapping[str, ActorFunction] | Sequence[ActorFunction]:
    """Return the actors by the names of their functions if these differ; a mapping as it is."""
    if len(actors) == 1 and isinstance(actors[0], Mapping):
        return actors[0]
    functions: list[Any] = list(actors)
    names = [str(getattr(function, "__name__", "")) for function in functions]
    are_different = len({*filter(str.isidentifier, names)}) == len(names)
    return dict(zip(names, functions, strict=True)) if are_different else functions


def _fail_on_refusal(run: Callable[[], _Result]) -> _Result:
    """Return the result; fail the test with the message, and without a traceback, for an `ExplorerError`."""
    from django_lockstep.lab.explorer import ExplorerError

    try:
        return run()
    except ExplorerError as error:
        refusal = str(error)
    # Outside of the except clause, so that pytest does not show the explorer's traceback.
    pytest.fail(refusal, pytrace=False)


@pytest.fixture(scope="session")
def _race_sessions(request: pytest.FixtureRequest, django_db_setup: None) -> Iterator[None]:
    """Keep the explorer's sessions until the test databases are dropped, and show paths from the root."""
    from django_lockstep.lab.explorer.effects.operations import name_project_root
    from django_lockstep.lab.explorer.tables.control_session import kept_sessions

    name_project_root(request.config.rootpath)
    with kept_sessions():
        yield


@pytest.fixture
def race(request: pytest.FixtureRequest) -> RaceFixture:
    """Race callables against each other on committed data: ``race(a, b, invariant=...)``."""
    try:
        request.getfixturevalue("django_db_blocker")
    except pytest.FixtureLookupError:
        pytest.fail("The fixture race needs pytest-django, which is not installed or not active", pytrace=False)
    if request.node.get_closest_marker("django_db") is None and "transactional_db" not in request.fixturenames:
        pytest.fail(
            "A race needs committed data: mark the test with @pytest.mark.django_db(transaction=True)", pytrace=False
        )
    # Not a parameter of the fixture, so that the messages above come before errors of a fixture that is missing.
    request.getfixturevalue("transactional_db")
    request.getfixturevalue("_race_sessions")
    option, in_ci = request.config.getoption, bool(os.environ.get("CI"))
    reads_output = any(name.startswith(("capsys", "capfd")) for name in request.fixturenames)
    return RaceFixture(
        max_schedules=option("--race-max-schedules"),
        audit=option("--race-audit"),
        timeline=option("--race-timeline"),
        folder=lambda: (
            option("--race-output")
            or (request.config.rootpath / "race-reports" if in_ci else request.getfixturevalue("tmp_path"))
        ),
        page=in_ci,
        # A fixture of the test's own reads what is printed by itself.
        capture=None if reads_output else request.config.pluginmanager.getplugin("capturemanager"),
        name=request.node.name,
        # Not the fixture record_property: it warns where --junitxml is given, although the report has the properties.
        record=lambda name, value: request.node.user_properties.append((name, value)),
    )
