"""Candidates are dealt out to several processes: each to one, those of a unit together."""

import pytest

from django_lockstep.lab.finder.shares import Share
from tests.django_lockstep.lab.finder.test_findings import candidate

CANDIDATES = [
    candidate("mild", unit="GET c", rank=9),
    candidate("bad", unit="POST a", rank=1),
    candidate("worse", unit="POST b", rank=0),
    candidate("late", unit="POST a", rank=7),
]


def test_the_worst_units_are_dealt_out_first_and_each_stays_whole() -> None:
    assert Share(1, 2).of(CANDIDATES) == {"worse", "mild"}
    assert Share(2, 2).of(CANDIDATES) == {"bad", "late"}
    assert Share(2, 2).of(reversed(CANDIDATES)) == {"bad", "late"}


def test_one_has_all_and_too_many_have_nothing() -> None:
    assert Share().of(CANDIDATES) == {item.id for item in CANDIDATES}
    assert Share(4, 4).of(CANDIDATES) == set()


@pytest.mark.parametrize("text", ["", "2", "0/2", "3/2", "1/2/3", "-1/2"])
def test_a_share_is_read_as_it_is_written_and_other_texts_are_refused(text: str) -> None:
    assert Share.parse(str(Share(2, 3))) == Share(2, 3)
    with pytest.raises(ValueError, match="a share must be a text such as 1/2"):
        Share.parse(text)
