"""Fixtures: over a row that exists ``loaddata`` brings no version back that somebody may have read."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from django_lockstep.locking import StaleVersionError


def dump(model: Any) -> list[Any]:
    call_command("dumpdata", model._meta.label, stdout=(out := io.StringIO()))
    rows: list[Any] = json.loads(out.getvalue())
    return rows


@pytest.fixture
def fixture(model: Any, seat: Any, tmp_path: Path) -> Path:
    path = tmp_path / "seats.json"
    path.write_text(json.dumps(dump(model)))
    return path


def test_over_a_row_that_exists_it_writes_all_but_the_version(model: Any, seat: Any, fixture: Path) -> None:
    (before,) = dump(model)
    seat.guest = "Ada"
    seat.save()
    call_command("loaddata", str(fixture), verbosity=0)
    (after,) = dump(model)
    assert after["fields"].pop("version") > seat.version > before["fields"].pop("version")
    assert after == before


def test_who_read_the_row_before_a_fixture_was_loaded_is_stale(model: Any, seat: Any, fixture: Path) -> None:
    seat.guest = "Ada"
    seat.save()
    late = model.objects.get()
    call_command("loaddata", str(fixture), verbosity=0)
    other = model.objects.get()
    other.guest = "Bob"
    other.save()

    late.guest = "Eve"
    with pytest.raises(StaleVersionError):
        late.save()
    assert model.objects.get().guest == "Bob"
