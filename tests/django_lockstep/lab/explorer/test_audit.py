"""Random walks beside a reduced search: a reduction that leaves too much out is found, and said."""

from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.outcomes import Failed
from django.core.management import CommandError, call_command

from django_lockstep.lab import pytest_plugin
from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.lab.explorer.audit import RandomWalk, _Node
from django_lockstep.lab.explorer.options import Options
from django_lockstep.lab.explorer.render.reports import RaceReport, as_text
from django_lockstep.lab.explorer.search import branches
from django_lockstep.lab.explorer.tally import ExplorationTally
from django_lockstep.lab.pytest_plugin import MISSED, RaceFixture
from tests.django_lockstep.lab.explorer import stories

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relation for which all steps of different actors are independent."""
    monkeypatch.setattr(branches, "dependent", lambda first, second: False)


def price_of(seen: Any) -> Scenario:
    return Scenario(set_up=stories.one_seat, actors=[stories.price, stories.computed], invariant=seen)


def anything(pk: int) -> bool:
    return True


@pytest.mark.parametrize(
    ("walks", "audited", "others"),
    [(0, 0, ""), (3, 2, "; 2 others at random agree"), (20, 2, "; 2 others at random agree")],
)
def test_walks_end_as_a_search_that_holds(walks: int, audited: int, others: str) -> None:
    race = explore(stories.raising(stories.locked), audit=walks)

    # Of its six schedules, two only swap independent steps of others.
    assert (race.verdict, race.audited) == ("holds", audited)
    assert race.reason == f"Every interleaving was explored, in 4 schedules{others}"
    shown = f"seats: holds (4 schedules{f' and {audited} at random' if audited else ''}, "
    assert as_text([RaceReport(name="seats", exploration=race)]).startswith(shown)


@pytest.mark.parametrize("options", [{"directed": True}, {"reduction": "none"}])
def test_what_proves_nothing_or_leaves_nothing_out_is_not_audited(options: dict[str, Any]) -> None:
    assert explore(stories.raising(stories.locked), audit=20, **options).audited == 0


@pytest.mark.usefixtures("blind")
def test_an_outcome_that_was_left_out_is_a_verdict_of_its_own() -> None:
    # The reduced search sees the price before the update only.
    assert explore(price_of(anything), audit=0).verdict == "holds"

    race = explore(price_of(anything), audit=20)

    assert race.verdict == "missed"
    assert not race.passed
    assert race.reason.startswith(
        "The reduction missed an outcome, please report: schedule BBA (random walk: 2 actors, "
    )
    assert "Taken for independent: B's COMMIT | A's SELECT" in race.reason
    assert {outcome.results["A"] for outcome in race.outcomes} == {"100.00", "110.00"}


@pytest.mark.usefixtures("blind")
def test_one_that_is_wrong_is_broken_and_says_so() -> None:
    race = explore(stories.raising(stories.naive), audit=20)

    assert race.verdict == "broken"
    assert race.failure is not None
    report = as_text([RaceReport(name="seats", exploration=race)])
    assert "The reduction missed an outcome, please report" in race.reason
    assert race.missed in report


@pytest.mark.usefixtures("blind")
def test_the_fixture_fails_and_pytest_ends_with_a_status_of_its_own() -> None:
    properties: list[tuple[str, object]] = []
    racing = RaceFixture(audit=20, record=lambda name, value: properties.append((name, value)))

    with pytest.raises(Failed, match="The reduction missed an outcome"):
        racing(stories.price, stories.computed, set_up=stories.one_seat, invariant=anything)
    session: Any = SessionOf(properties)
    pytest_plugin.pytest_sessionfinish(session)

    assert session.exitstatus == MISSED == 10


class SessionOf:
    """A session of pytest in which a test with these properties failed."""

    exitstatus = 1

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self.user_properties = properties
        self.stats = {"failed": [self]}
        self.config = self.pluginmanager = self
        self.get_plugin = lambda name: self


@pytest.mark.usefixtures("blind")
def test_the_command_ends_with_a_status_of_its_own() -> None:
    with pytest.raises(CommandError, match="The reduction missed an outcome") as refused:
        call_command("explore", f"{__name__}.SCENARIO", "--audit=20", "--database=default", verbosity=0)

    assert refused.value.returncode == 3


SCENARIO = price_of(anything)


def test_walks_do_not_go_where_every_schedule_was_run() -> None:
    runs = _Node()
    runs.add([0, 0, 1])
    moves = []
    for number in range(8):
        walk = RandomWalk(str(number), runs=runs)
        run = list(walked(walk, [2, 1]))
        runs.add([actor for actor, _ in run], [enabled for _, enabled in run])
        moves.append("".join(str(actor) for actor, _ in run))

    assert runs.exhausted
    assert {*moves, "001"} == {"001", "010", "100"}


def walked(walk: RandomWalk, left: list[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Make the walk of actors that have so many steps left."""
    while enabled := tuple(actor for actor, steps in enumerate(left) if steps):
        actor = walk.choose(enabled)
        left[actor] -= 1
        yield actor, enabled


def test_a_search_that_starts_over_knows_nothing_of_the_runs_before() -> None:
    tally = ExplorationTally(options=Options(), begun=0.0, names=())
    tally.observed.unordered_locks.add(("A", "shop_seat"))
    tally.observed.several_locks.add(("B", "shop_seat"))

    tally.start_over()

    assert not tally.observed.unordered_locks | tally.observed.several_locks
