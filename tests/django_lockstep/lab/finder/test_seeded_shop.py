"""The seeded shop is what its list says: the explorer breaks what races, and holds what does not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from django_lockstep.lab.explorer import Scenario, explore
from tests.django_lockstep.lab.finder.seeded_scenarios import SCENARIOS, Shop
from tests.support.processes import assert_clean
from tests.support.seeded_shop import copy_shop, database_url, run_suite
from tests.testapps import seeded_shop
from tests.testapps.seeded_shop.units import UNITS, SeededUnit

pytestmark = pytest.mark.django_db(transaction=True)


def routes(patterns: list[URLPattern | URLResolver], prefix: str = "") -> set[str]:
    exploration: set[str] = set()
    for pattern in patterns:
        route = f"{prefix}{pattern.pattern}"
        exploration |= routes(pattern.url_patterns, route) if isinstance(pattern, URLResolver) else {route}
    return exploration


def test_every_unit_has_a_twin_and_a_scenario() -> None:
    assert len(UNITS) == 24
    assert {unit.name for unit in UNITS} == {
        name.format(shop=shop) for name in SCENARIOS for shop in ("racing", "correct")
    }
    assert sum(unit.racing for unit in UNITS) == 12


def test_every_route_is_a_unit() -> None:
    requests = {unit.name.partition(" ")[2] for unit in UNITS if " " in unit.name}

    assert requests == routes(get_resolver(f"{seeded_shop.__name__}.urls").url_patterns)
    assert len(requests) == 16


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


def test_its_own_suite_passes_as_a_project_of_its_own(tmp_path: Path) -> None:
    assert_clean(run_suite(copy_shop(tmp_path), url=database_url()))
