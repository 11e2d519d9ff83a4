"""Sessions that send statements one by one, without a database."""

from dataclasses import replace
from typing import Any

from django_lockstep.lab.explorer.effects.catalog import Catalog, ForeignKey, TableFacts
from django_lockstep.lab.explorer.effects.footprints import LOCAL, Commits, Footprint
from django_lockstep.lab.explorer.effects.introspection import Functions
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.effects.transactions import Transaction

SEAT = TableFacts(name="seat", pk="id", unique=frozenset({"id"}))
TICKET = replace(SEAT, name="ticket")
STUB = replace(TICKET, name="stub", foreign_keys=frozenset({ForeignKey(parent="seat", columns=("seat_id",))}))
READ, WRITE = "SELECT price FROM seat WHERE id = 1", "UPDATE seat SET price = 2 WHERE id = 2"


class Session:
    """Sends statements one by one; with the same commits, sessions are of one run."""

    def __init__(self, commits: Commits, *, level: str = "serializable", **options: Any) -> None:
        self._given = {"alias": "default", "pid": 1, "autocommit": False, "isolation": level, **options}
        catalog = Catalog([SEAT, TICKET, STUB], functions=Functions(servers=frozenset({"anything"})))
        self._transaction = Transaction(catalog, commits)
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
    session = Session(Commits(), level=level, read_only=read_only)
    if error is not None:
        session.send(*statements[:-1], rows=rows, error=error)
        statements = statements[-1:]
    return session.send(*statements, rows=rows)


CHANGE, INSERT = "UPDATE seat SET price = 2 WHERE id = 1", "INSERT INTO ticket (price) VALUES (1)"
OTHER_READ, OTHER_CHANGE = "SELECT price FROM seat WHERE id = 3", "UPDATE seat SET price = 2 WHERE id = 3"
ADDED = "INSERT INTO seat (price) VALUES (2)"
"""An entry for an index."""
