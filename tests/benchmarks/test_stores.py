"""The stores' figures: sound only if what was reported is what is there."""

from dataclasses import replace
from typing import Any

import pytest
from pytest_django import Settings

from benchmarks.stores import SUITE
from benchmarks.stores.contenders import CONTENDERS
from benchmarks.stores.contention import Counts
from benchmarks.suite import Options

SOUND = Counts(
    acquired=2,
    lost=1,
    overlaps=0,
    tokens_in_order=True,
    guarded=1,
    guarded_counted=1,
    optimistic=3,
    optimistic_counted=3,
)


@pytest.mark.parametrize(
    "change",
    [{"overlaps": 1}, {"tokens_in_order": False}, {"guarded": 2}, {"guarded_counted": 2}, {"optimistic_counted": 2}],
    ids=str,
)
def test_what_does_not_fit_together_is_not_sound(change: dict[str, Any]) -> None:
    assert SOUND.is_sound
    assert not replace(SOUND, **change).is_sound


@pytest.mark.django_db(transaction=True)
def test_everyone_takes_part(dynamodb_url: str, settings: Settings) -> None:
    section = SUITE.run(Options(workers=(2,), rounds=1, seconds=1), say=lambda line: None)
    contention, alone, together = section.tables
    assert section.sound
    assert [row[:2] for row in contention.rows] == [("DynamoDB", "sound")]
    for table in (alone, together):
        assert [str(row[0]).removesuffix(": not installed") for row in table.rows] == list(CONTENDERS)
        assert all(row[1] or "not installed" in str(row[0]) for row in table.rows)
