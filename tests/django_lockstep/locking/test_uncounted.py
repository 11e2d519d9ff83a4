"""Columns whose change is not a new version: counters, times of last use."""

from typing import Any

import pytest
from django.db import connection, models
from django.db.models import F
from django.utils import timezone

from django_lockstep.locking import StaleVersionError, VersionedModel, VersionField
from tests.django_lockstep.locking.looks import fresh, statements
from tests.testapps.shop.models import Turnstile

pytestmark = pytest.mark.django_db


@pytest.fixture
def gate() -> Turnstile:
    return Turnstile.objects.create()


def count_up(gate: Turnstile, **values: Any) -> None:
    Turnstile.objects.filter(pk=gate.pk).update(**{"passages": F("passages") + 1, **values})


def test_a_save_of_them_alone_writes_them_and_keeps_the_version(gate: Turnstile) -> None:
    gate.passed_at = timezone.now()
    gate.save()
    assert (fresh(gate).version, gate.version, fresh(gate).passed_at) == (1, 1, gate.passed_at)
    assert statements(gate.save) == ["SELECT"]


def test_so_does_a_save_that_names_them(gate: Turnstile) -> None:
    gate.passages, gate.guest = 5, "Ada"
    gate.save(update_fields=["passages"])
    assert (fresh(gate).version, fresh(gate).passages, fresh(gate).guest) == (1, 5, "")


def test_the_querysets_update_and_sql_keep_it_too(gate: Turnstile) -> None:
    count_up(gate)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE shop_turnstile SET passages = passages + 1")
    assert (fresh(gate).version, fresh(gate).passages) == (1, 2)


def test_a_write_of_others_as_well_counts(gate: Turnstile) -> None:
    gate.passages, gate.guest = 5, "Ada"
    gate.save()
    count_up(gate, guest="Bob")
    assert (gate.version, fresh(gate).version, fresh(gate).passages) == (2, 3, 6)


def test_a_save_of_others_does_not_take_back_what_was_counted_meanwhile(gate: Turnstile) -> None:
    count_up(gate)
    gate.guest = "Ada"
    gate.save()
    assert (fresh(gate).guest, fresh(gate).passages, fresh(gate).version) == ("Ada", 1, 2)


def test_a_stale_save_of_them_is_refused(gate: Turnstile) -> None:
    stale = fresh(gate)
    gate.guest = "Ada"
    gate.save()
    stale.passages = 5
    with pytest.raises(StaleVersionError):
        stale.save()
    assert fresh(gate).passages == 0


def test_force_write_counts_all_the_same(gate: Turnstile) -> None:
    gate.passages = 5
    gate.save(force_write=True)
    assert (fresh(gate).passages, fresh(gate).version, gate.version) == (5, 2, 2)


def test_the_names_are_part_of_migrations_but_not_of_the_table() -> None:
    field = VersionField(uncounted=["passages"])
    *_, options = field.deconstruct()
    assert options["uncounted"] == ("passages",)
    assert "uncounted" in field.non_db_attrs


@pytest.mark.parametrize("name", ["typo", "id", "version"])
def test_a_name_that_is_not_a_column_beside_it_is_an_error(name: str) -> None:
    model = type(
        f"Gate{name.title()}",
        (VersionedModel,),
        {
            "__module__": __name__,
            "Meta": type("Meta", (), {"app_label": f"gates_{name}"}),
            "version": VersionField(uncounted=[name]),
            "guest": models.CharField(max_length=50),
        },
    )
    assert [message.id for message in model.check(databases=None)] == ["lockstep.E040"]  # type: ignore[attr-defined]
