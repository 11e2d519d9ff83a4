"""The fixture ``race``: whether plain Django callables survive every interleaving of their SQL statements.

Does nothing in projects without Django: everything of the lab is imported when the fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from accounts.lab.explorer import Exploration, Run

__all__ = ["RaceFixture", "race"]

Step = Callable[[Any], Any]


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


class RaceFixture:
    """Races callables and fails the test when they break; see the fixture `race`."""

    def __init__(self, *, max_schedules: int | None = None) -> None:
        self._max_schedules = max_schedules

    def __call__(
        self,
        *actors: Step,
        set_up: Callable[[], Any],
        invariant: Callable[[Any], bool] | None = None,
        observe: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> Exploration:
        """Explore every interleaving, and fail the test with a timeline unless all end right.

        Each actor is called with what ``set_up`` returned, in a thread and on a connection of its own; ``options`` are
        those of `explore`. Without an invariant the end has to be one that the actors reach one after the other.
        """
        from accounts.lab.explorer import Scenario, explore

        scenario = Scenario(set_up=set_up, actors=actors, invariant=invariant, observe=observe)
        found = explore(scenario, **{"max_schedules": self._max_schedules, **options})
        if not found.ok:
            pytest.fail(_report(found), pytrace=False)
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
        from accounts.lab.explorer import Scenario, replay, timeline

        scenario = Scenario(set_up=set_up, actors=actors, invariant=invariant, observe=observe)
        run = replay(scenario, schedule, **options)
        if not run.holds:
            pytest.fail(timeline(run), pytrace=False)
        return run


def _report(found: Exploration) -> str:
    """Return the verdict with the timeline of what went wrong, and how to see it again."""
    from accounts.lab.explorer import timeline

    lines = [f"The race is {found.verdict}. {found.reason}"]
    if found.failure is not None:
        again = f'Again: race.replay("{found.failure.schedule}", ...) with the same actors'
        lines += ["", timeline(found.failure), "", again]
    return "\n".join(lines)


@pytest.fixture
def race(request: pytest.FixtureRequest) -> RaceFixture:
    """Race callables against each other on committed data, as ``race(a, b, set_up=..., invariant=...)``."""
    request.getfixturevalue("transactional_db")
    return RaceFixture(max_schedules=request.config.getoption("--race-max-schedules"))
