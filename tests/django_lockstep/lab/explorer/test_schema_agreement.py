"""Reduced and full search agree on schemas that nobody chose.

``RACE_EXAMPLES=500`` takes as many schemas, other ones every time; ``RACE_SEED`` names the first of them.
"""

import os

import pytest
from django.db import DatabaseError

from django_lockstep.lab.explorer import explore
from tests.django_lockstep.lab.explorer.programs import ends
from tests.django_lockstep.lab.explorer.random_schemas import Drawing
from tests.django_lockstep.lab.explorer.schemas import made, race_on

pytestmark = pytest.mark.django_db(transaction=True)

FIRST = int(os.environ.get("RACE_SEED", "1"))
COUNT = int(os.environ.get("RACE_EXAMPLES", "12"))
MOST = 80
"""Interleavings above which programs are left out."""


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_reduced_and_full_search_agree_on_random_schemas(seed: int) -> None:
    drawing = Drawing(seed)
    try:
        with made(*drawing.schema):
            scenario = race_on(drawing.tables, drawing.rows, *drawing.actors)
            full = explore(scenario, reduction="none", max_schedules=MOST, raises=DatabaseError)
            if full.verdict == "incomplete":
                pytest.skip("too many interleavings, or the server alone decided")
            reduced = explore(scenario, raises=DatabaseError)
    except DatabaseError as error:
        pytest.skip(f"the rows do not fit the schema: {error}")

    assert full.verdict == reduced.verdict == "holds", (full.reason, reduced.reason, drawing)
    assert ends(reduced) == ends(full), drawing
    assert reduced.schedules <= full.schedules, drawing
