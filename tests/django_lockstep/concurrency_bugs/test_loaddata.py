"""Fixtures load over rows that exist: ``dumpdata`` and ``loaddata`` make a round trip."""

import io
from pathlib import Path
from typing import Any

from django.core.management import call_command


def test_a_fixture_restores_what_it_was_made_of(model: Any, seat: Any, tmp_path: Path) -> None:
    def dump() -> str:
        out = io.StringIO()
        call_command("dumpdata", model._meta.label, stdout=out)
        return out.getvalue()

    before = dump()
    fixture = tmp_path / "seats.json"
    fixture.write_text(before)
    seat.guest = "Ada"
    seat.save()
    call_command("loaddata", str(fixture), verbosity=0)
    assert dump() == before
    model.objects.all().delete()
    call_command("loaddata", str(fixture), verbosity=0)
    assert dump() == before
