"""The selection names places and marks that there are."""

import re

import pytest

from tests.support.pages import ROOT
from tests.support.selection import PLACES


@pytest.mark.parametrize("place", [place for places in PLACES.values() for place in places])
def test_the_place_is_there(place: str) -> None:
    path, _, function = place.partition("::")
    assert (ROOT / path).exists()
    if function:
        assert re.search(rf"^def {function.partition('[')[0]}", (ROOT / path).read_text(), re.MULTILINE)


def test_every_mark_is_left_out_and_named(pytestconfig: pytest.Config) -> None:
    listed = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    left_out = (ROOT / "pyproject.toml").read_text()
    for name in PLACES:
        assert name in listed
        assert f"not {name}" in left_out
