"""Reduced and full search agree on schemas that nobody chose.

``RACE_EXAMPLES=500`` takes as many schemas, other ones every time; ``RACE_SEED`` names the first of them, and
``RACE_ACTORS=3`` leaves out those with two programs.
"""

import os
from itertools import count

import pytest
from django.db import DatabaseError

from django_lockstep.lab.explorer import Exploration, explore
from tests.django_lockstep.lab.explorer.programs import ends, orders
from tests.django_lockstep.lab.explorer.random_schemas import Drawing
from tests.django_lockstep.lab.explorer.schemas import made, race_on

pytestmark = pytest.mark.django_db(transaction=True)

FIRST = int(os.environ.get("RACE_SEED", "1"))
EXAMPLES = int(os.environ.get("RACE_EXAMPLES", "4"))
ACTORS = int(os.environ.get("RACE_ACTORS", "0"))
MOST = {2: 100, 3: 220}
"""Interleavings above which so many programs are left out."""


def explored_whole(drawing: Drawing) -> tuple[Exploration, Exploration] | None:
    """Explore with and without reduction; None where the rows do not fit the schema, or too much is run, or nothing."""
    most = MOST[len(drawing.programs)]
    if orders(*(len(statements) + 1 for statements in drawing.programs)) > 3 * most:  # each ends with a COMMIT
        return None
    try:
        with made(*drawing.schema):
            scenario = race_on(drawing.tables, drawing.rows, *drawing.actors)
            full = explore(scenario, reduction="none", max_schedules=most, raises=DatabaseError)
            if full.verdict in {"incomplete", "vacuous"}:
                return None
            return full, explore(scenario, raises=DatabaseError)
    except DatabaseError:
        return None


@pytest.mark.parametrize("seed", range(FIRST, FIRST + EXAMPLES))
def test_reduced_and_full_search_agree_on_random_schemas(seed: int) -> None:
    drawings = (it for number in count() if len((it := Drawing(1000 * seed + number)).programs) >= ACTORS)
    drawing, explorations = next((candidate, both) for candidate in drawings if (both := explored_whole(candidate)))
    full, reduced = explorations

    assert full.verdict == reduced.verdict == "holds", (full.reason, reduced.reason, drawing)
    assert ends(reduced) == ends(full), drawing
    assert reduced.schedules <= full.schedules, drawing
