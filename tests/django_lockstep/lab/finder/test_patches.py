"""Changes of the project's lines: what is written, and that the changed code is what runs."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from django_lockstep.lab.finder.confirm.remedies import Patch, patches_for
from django_lockstep.lab.finder.record.recording import RecordedStatement, Site
from tests.django_lockstep.lab.finder.test_findings import candidate
from tests.testapps.seeded_shop.racing.models import Wallet

SOURCE = '''
"""A shop."""

from __future__ import annotations

from shop.models import Order, Seat


class Shop:
    def book(self, pk, guest):
        """Bücher."""
        seat = Seat.objects.get(pk=pk)
        seat.guest, seat.free = guest, False
        seat.save()
        return seat

    def cancel(self, pk):
        seat = get_object_or_404(Seat, pk=pk)
        seat.delete()

    def pay(self, pk):
        wallet = Wallet.objects.get(pk=pk)
        wallet.balance -= 30
        wallet.save()  # all of it
        return wallet
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The project's folder, with its module."""
    (tmp_path / "sold.py").write_text(SOURCE.lstrip().replace("from shop.models import Order, Seat\n", "Seat = None\n"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return importlib.import_module("sold")


def line(text: str) -> int:
    return Path("sold.py").read_text().splitlines().index(text) + 1


def patches(
    read: str, write: str, function: str, *, kind: str, in_transaction: bool = False, table: str = "seat"
) -> list[Patch]:
    accesses = {
        name: RecordedStatement(site=Site(path="sold.py", line=line(text), function=function), sql="")
        for name, text in {"read": read, "write": write}.items()
    }
    race = candidate("a", kind=kind, table=table, **accesses)
    return list(patches_for(race, in_transaction=in_transaction))


def changed(patch: Patch) -> list[str]:
    return [text for text in patch.diff.splitlines() if text[0] in "+-" and text[:3] not in {"+++", "---"}]


READ, SAVE = "        seat = Seat.objects.get(pk=pk)", "        seat.save()"
LOCKED = [f"-{READ}", f"+{READ.replace('.get', '.select_for_update().get')}"]
FIELDS = [f"-{SAVE}", '+        seat.save(update_fields=["guest", "free"])']
ATOMIC = ["+from django.db import transaction", "+    @transaction.atomic"]


@pytest.mark.parametrize(
    ("kind", "in_transaction", "changes"),
    [
        ("read-modify-write", True, [LOCKED, [*LOCKED, *FIELDS]]),
        ("read-modify-write", False, [[*ATOMIC, *LOCKED], [*ATOMIC, *LOCKED, *FIELDS]]),
        ("whole-row-write", True, [FIELDS, LOCKED, [*LOCKED, *FIELDS]]),
    ],
)
def test_the_row_is_locked_and_what_was_set_is_written(
    kind: str, in_transaction: bool, changes: list[list[str]]
) -> None:
    assert [
        changed(patch) for patch in patches(READ, SAVE, "Shop.book", kind=kind, in_transaction=in_transaction)
    ] == changes


PAY = ("        wallet = Wallet.objects.get(pk=pk)", "        wallet.save()  # all of it", "Shop.pay")


@pytest.mark.parametrize("in_transaction", [True, False])
def test_an_update_that_computes_the_value_is_tried_first(in_transaction: bool) -> None:
    table = Wallet._meta.db_table
    first, *others = patches(*PAY, kind="read-modify-write", in_transaction=in_transaction, table=table)
    # The value that it reads again is its own as long as the row is locked.
    assert changed(first) == [
        *([] if in_transaction else ATOMIC[:1]),
        "+from django.db.models import F",
        *([] if in_transaction else ATOMIC[1:]),
        "-        wallet.balance -= 30",
        "-        wallet.save()  # all of it",
        '+        wallet.balance = F("balance") - 30',
        '+        wallet.save(update_fields=["balance"])',
        '+        wallet.refresh_from_db(fields=["balance"])',
    ]
    assert all("select_for_update" in patch.diff for patch in others)
    assert len(others) == len(patches(*PAY, kind="late-lock", table=table)) == 2


@pytest.mark.parametrize(
    ("rows", "locking"),
    [
        ("Seat", "Seat.objects.select_for_update()"),
        ("models.Seat", "models.Seat.objects.select_for_update()"),
        ("Seat.objects", "Seat.objects.select_for_update()"),
        ("SEATS", "SEATS.select_for_update()"),
    ],
)
def test_of_a_shortcut_the_query_locks(rows: str, locking: str) -> None:
    source = Path("sold.py")
    source.write_text(source.read_text().replace("get_object_or_404(Seat,", f"get_object_or_404({rows},"))
    read, write = f"        seat = get_object_or_404({rows}, pk=pk)", "        seat.delete()"
    (patch,) = patches(read, write, "Shop.cancel", kind="check-then-act", in_transaction=True)

    assert changed(patch)[1] == f"+        seat = get_object_or_404({locking}, pk=pk)"


def test_code_of_another_form_has_none() -> None:
    assert patches('        """Bücher."""', SAVE, "Shop.book", kind="read-modify-write") == []
    assert list(patches_for(candidate("a"), in_transaction=True)) == []
    # As of a coroutine, or of a lambda.
    assert patches(READ, SAVE, "Shop.book.<locals>.<lambda>", kind="whole-row-write") == []
