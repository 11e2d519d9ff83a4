"""What the project relies on, as a test for pytest."""

import pytest

from django_lockstep.lab.pytest_plugin import RaceFixture

from .spending import is_not_overdrawn, open_account, spend


@pytest.mark.django_db(transaction=True)
def test_points_are_spent_once(race: RaceFixture) -> None:
    race(spend, spend, set_up=open_account, invariant=is_not_overdrawn)
