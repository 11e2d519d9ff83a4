"""The ready-made races show what they are here to show."""

import pytest

from accounts.lab.explorer import explore
from accounts.lab.scenarios.races import RACES, Race
from tests.lab.explorer.test_agreement import ends

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("race", RACES.values(), ids=list(RACES))
def test_a_race_comes_out_as_it_says(race: Race) -> None:
    found = explore(race.scenario, max_schedules=3000)

    assert race.as_expected(found), found.reason


@pytest.mark.parametrize("name", ["lost-update:optimistic", "transfers:unordered", "queue:skip-locked"])
def test_full_and_reduced_search_agree(name: str) -> None:
    scenario = RACES[name].scenario
    assert ends(explore(scenario)) == ends(explore(scenario, reduction="none"))
