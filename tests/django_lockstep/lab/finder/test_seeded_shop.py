"""The seeded shop is what its list says: the explorer breaks what races, and holds what does not."""

from collections.abc import Callable

import pytest

from django_lockstep.lab.explorer import Scenario, explore
from tests.django_lockstep.lab.finder.seeded_scenarios import SCENARIOS, Shop
from tests.testapps.seeded_shop.units import UNITS, SeededUnit

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_unit_has_a_twin_and_a_scenario() -> None:
    assert len(UNITS) == 24
    assert {unit.name for unit in UNITS} == {
        name.format(shop=shop) for name in SCENARIOS for shop in ("racing", "correct")
    }
    assert sum(unit.racing for unit in UNITS) == 12


CASES = [
    pytest.param(unit, build, id=f"{unit.name}{build.__name__}")
    for unit in UNITS
    for build in SCENARIOS[unit.name.replace(unit.shop, "{shop}")]
]


@pytest.mark.parametrize(("unit", "build"), CASES)
def test_a_racing_unit_breaks_and_its_twin_holds(unit: SeededUnit, build: Callable[[Shop], Scenario]) -> None:
    exploration = explore(build(Shop(unit.shop)), no_deadlock=True, stop_on_first=unit.racing)

    assert exploration.verdict == ("broken" if unit.racing else "holds"), exploration.reason
    assert bool(exploration.deadlocks) == (unit.racing and unit.kind == "lock-order")
