"""Sessions that send statements one by one, without a database."""

from dataclasses import replace
from typing import Any

from django_lockstep.lab.explorer.effects.catalog import Catalog, ForeignKey, TableFacts
from django_lockstep.lab.explorer.effects.footprints import LOCAL, Footprint
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.effects.overlap import Overlap
from django_lockstep.lab.explorer.effects.transactions import Transaction

SEAT = TableFacts(name="seat", pk="id", unique=frozenset({"id"}), indexed=frozenset({"id", "row"}))
TICKET = replace(SEAT, name="ticket")
STUB = replace(TICKET, name="stub", foreign_keys=frozenset({ForeignKey(parent="seat", columns=("seat_id",))}))
READ, WRITE = "SELECT price FROM seat WHERE id = 1", "UPDATE seat SET price = 2 WHERE id = 2"


class Session:
    """Sends statements one by one; of the sessions with one overlap the transactions overlap."""

    def __init__(self, overlap: Overlap, *, level: str = "serializable", few_rows: bool = True, **given: Any) -> None:
        self._given = {"alias": "default", "pid": 1, "autocommit": False, "isolation": level, **given}
        catalog = Catalog([SEAT, TICKET, STUB], uncounted=["anything"])
        catalog.note_few_rows(["seat", "ticket", "stub"] if few_rows else [])
        self._transaction = Transaction(catalog, overlap)
        self._open = False

    def send(self, *statements: str, rows: int | None = 1, error: BaseException | None = None) -> Footprint:
        """Return what the last one touches, which fails with the error."""
        touched = LOCAL
        for number, sql in enumerate(statements, 1):
            failed = error if number == len(statements) else None
            ends = sql in {"COMMIT", "ROLLBACK"}
            operation = Operation(
                sql=sql, in_transaction=self._open, ends_idle=ends, rows=rows, error=failed, **self._given
            )
            self._transaction.begin(operation)
            touched = self._transaction.footprint(operation)
            self._open = not ends
        return touched


def steps(
    *statements: str,
    level: str = "serializable",
    rows: int | None = None,
    error: BaseException | None = None,
    read_only: bool = False,
) -> Footprint:
    """Return what the last statement touches; the one before it fails with the error."""
    session = Session(Overlap(), level=level, read_only=read_only)
    if error is not None:
        session.send(*statements[:-1], rows=rows, error=error)
        statements = statements[-1:]
    return session.send(*statements, rows=rows)


CHANGE, INSERT = "UPDATE seat SET price = 2 WHERE id = 1", "INSERT INTO ticket (price) VALUES (1)"
OTHER_READ, OTHER_CHANGE = "SELECT price FROM seat WHERE id = 3", "UPDATE seat SET price = 2 WHERE id = 3"
OTHER_MOVED = "UPDATE seat SET row = 'A' WHERE id = 3"
"""A change of a column with an index."""
