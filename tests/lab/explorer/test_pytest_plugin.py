"""The fixture ``race``."""

import pytest
from _pytest.outcomes import Failed

from accounts.lab.pytest_plugin import RaceFixture
from tests.lab.explorer import stories

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_holds_passes_and_answers_with_the_exploration() -> None:
    found = RaceFixture()(stories.locked, stories.locked, set_up=stories.one_seat, invariant=stories.raised_by(10))

    assert found.verdict == "holds"


def test_what_breaks_fails_with_a_timeline_and_a_schedule_to_paste() -> None:
    with pytest.raises(Failed) as failed:
        RaceFixture()(stories.naive, stories.naive, set_up=stories.one_seat, invariant=stories.raised_by(10))

    assert "lost update: " in str(failed.value)
    assert 'race.replay("AABBAB", ...)' in str(failed.value)


def test_a_schedule_is_replayed() -> None:
    racing = RaceFixture()

    right = racing.replay("AAABBB", *[stories.naive] * 2, set_up=stories.one_seat, invariant=stories.raised_by(10))
    with pytest.raises(Failed, match="schedule AABBAB, WRONG"):
        racing.replay("AABBAB", *[stories.naive] * 2, set_up=stories.one_seat, invariant=stories.raised_by(10))

    assert right.holds


def test_what_was_not_explored_to_the_end_fails() -> None:
    with pytest.raises(Failed, match="incomplete"):
        RaceFixture(max_schedules=1)(stories.locked, stories.locked, set_up=stories.one_seat)


def test_the_fixture_is_there(race: RaceFixture) -> None:
    found = race(stories.locked, stories.locked, set_up=stories.one_seat)

    assert (
        found.verdict,
        race.replay(found.outcomes[0].schedule, *[stories.locked] * 2, set_up=stories.one_seat).holds,
    ) == (
        "holds",
        True,
    )
