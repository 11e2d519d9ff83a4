"""Directed searches of the ready-made races find each broken one, and nothing in the others."""

import pytest

from accounts.races.ready_made import RACES
from django_lockstep.lab.explorer import explore

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("name", RACES)
def test_a_directed_race_comes_out_as_it_says(name: str) -> None:
    found = explore(RACES[name].scenario, directed=True)

    assert RACES[name].as_expected(found), found.reason
    assert found.verdict == ("nothing found" if RACES[name].holds else "broken")
