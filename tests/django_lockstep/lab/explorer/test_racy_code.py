"""Racy code is broken and explained, its repair holds; see `racy_code`."""

import pytest

from django_lockstep.lab.explorer import explore, timeline
from django_lockstep.lab.explorer.render.explanations import find_explanation
from django_lockstep.lab.explorer.render.summaries import describe_step
from tests.django_lockstep.lab.explorer.racy_code import PAIRS

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("name", PAIRS)
def test_racy_code_is_broken_and_the_sentence_names_the_cause_and_the_statement(name: str) -> None:
    exploration = explore(PAIRS[name].scenario(safe=False), stop_on_first=True)

    assert exploration.failure is not None
    explanation = find_explanation(exploration.failure)
    assert explanation.kind == PAIRS[name].kind
    assert PAIRS[name].words in explanation.text
    assert explanation.step is not None
    assert describe_step(explanation.step).startswith(PAIRS[name].step)
    assert "To prevent it: " in timeline(exploration.failure)


@pytest.mark.parametrize("name", PAIRS)
def test_repaired_code_holds(name: str) -> None:
    exploration = explore(PAIRS[name].scenario(safe=True))

    assert exploration.verdict == "holds", exploration.reason
