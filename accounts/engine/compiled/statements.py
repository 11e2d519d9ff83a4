"""The statements themselves: what `Ledger` sends, as the query set API compiles it, with the entries' INSERT behind."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Literal

from django.db import connections, models
from django.db.models import F

from django_lockstep.locking.compiled import Compiled, Parameter, compile_select, compile_update, parameter
from django_lockstep.locking.fields import version_field
from django_lockstep.locking.writes import auto_now_fields

__all__ = ["GIVEN", "Sign", "Statements", "Wait"]

Sign = Literal["minus", "plus"]
Wait = Literal["wait", "queue", "nowait"]
SIGNS: tuple[Sign, ...] = ("minus", "plus")


class Statements:
    """Every statement for one account model on one database, compiled when it is first needed.

    ``wait`` says what to do where somebody has the row: wait for it, wait in an advisory lock's queue before it, or
    raise at once. The places are called: ``pk``, ``seen`` and ``next`` (versions), ``balance``, ``amount``, ``least``
    (the balance plus the overdraft limit must not be below it) or ``bound`` (the balance must be below it), ``queue``
    (the key of an advisory lock), ``idempotency_key``, ``transfer``, and the fields with ``auto_now`` by their names.
    """

    def __init__(self, model: type[models.Model], using: str) -> None:
        self.model = model
        self.using = using
        self.ops = connections[using].ops
        self.version = version_field(model).attname
        self.entry: type[models.Model] = model._meta.get_field("entries").related_model  # type: ignore[assignment]
        self.extras = [field for field in self.entry._meta.concrete_fields if _is_extra(field)]
        self.touched = auto_now_fields(model)
        self.rows: models.QuerySet[Any] = model._base_manager.using(using)
        self.row = self.rows.filter(pk=parameter(model, "pk"))

    @functools.cached_property
    def read(self) -> Compiled:
        """SELECT the row."""
        return compile_select(self.row)

    @functools.cached_property
    def lock(self) -> dict[Wait, Compiled]:
        """SELECT the row ``FOR NO KEY UPDATE``."""
        no_key, nowait = self.ops.for_update_sql(no_key=True), self.ops.for_update_sql(nowait=True, no_key=True)
        return {
            "queue": self.read + self._queue + f" {no_key}",
            "wait": self.read + f" {no_key}",
            "nowait": self.read + f" {nowait}",
        }

    @functools.cached_property
    def write(self) -> dict[bool, Compiled]:
        """UPDATE the row to a balance and INSERT the entry, answering with nothing; by whether to compare versions."""
        guarded = self.row.filter(**{self.version: self._place(self.version, "seen")})
        changes = {
            "balance": self._place("balance"),
            self.version: self._place(self.version, "next"),
            "entry_count": F("entry_count") + 1,
            **self._touches,
        }
        return {
            compares: "WITH changed AS ("
            + self._returning(compile_update(rows, changes), *self._read.values())
            + ") "
            + self._booking
            for compares, rows in ((True, guarded), (False, self.row))
        }

    @functools.cached_property
    def add(self) -> dict[tuple[Sign, Wait], Compiled]:
        """UPDATE the balance by an amount and INSERT the entry."""
        ways: tuple[tuple[Wait, Compiled | str], ...] = (("wait", ""), ("queue", self._queue))
        return {
            (sign, wait): "WITH " + self._sum(self.row, sign=sign, also=queue) for sign in SIGNS for wait, queue in ways
        }

    @functools.cached_property
    def lock_and_add(self) -> dict[tuple[Sign, Wait], Compiled]:
        """Lock the row and do as `add`."""
        (key,) = self._columns([self.model._meta.pk])
        table = self.ops.quote_name(self.model._meta.db_table)
        mine = f" AND {table}.{key} = (SELECT {key} FROM locked)"
        return {
            (sign, wait): "WITH locked AS MATERIALIZED (" + lock + "), " + self._sum(self.rows, sign=sign, also=mine)
            for sign in SIGNS
            for wait, lock in self.lock.items()
        }

    @functools.cached_property
    def _queue(self) -> Compiled:
        """Condition that takes the advisory lock, once, before the rows are looked for."""
        place = Compiled("%s", (Parameter("queue", models.BigIntegerField()),))
        return " AND (SELECT pg_advisory_xact_lock(" + place + ")) IS NOT NULL"

    def _sum(self, rows: models.QuerySet[Any], *, sign: Sign, also: Compiled | str) -> Compiled:
        """Return the tables ``changed`` and ``booked`` of a WITH, and the SELECT of what was changed."""
        changed = self._returning(self._added(rows, sign) + also, *self.model._meta.concrete_fields)
        return "changed AS (" + changed + "), booked AS (" + self._booking + ") SELECT * FROM changed"

    def _book(self, rows: models.QuerySet[Any], *, sign: Sign) -> Compiled:
        """Return the statement that adds to the row and answers with the entry: key, account, balance and version."""
        changed = self._returning(self._added(rows, sign), *self._read.values())
        returned = ", ".join(self._columns((self.entry._meta.pk, *self._read)))
        return "WITH changed AS (" + changed + ") " + self._booking + f" RETURNING {returned}"

    def _added(self, rows: models.QuerySet[Any], sign: Sign) -> Compiled:
        """Return the UPDATE of the balance by an amount, where limit and size allow it."""
        allowed = (
            {"balance__gte": self._place("balance", "least") - F("overdraft_limit")}
            if sign == "minus"
            else {"balance__lt": self._place("balance", "bound")}
        )
        changes = {
            "balance": F("balance") + self._place("balance", "amount"),
            self.version: F(self.version) + 1,
            "entry_count": F("entry_count") + 1,
            **self._touches,
        }
        return compile_update(rows.filter(**allowed), changes)

    def _place(self, name: str, called: str | None = None) -> Parameter:
        return parameter(self.model, name, called=called)

    @functools.cached_property
    def _touches(self) -> dict[str, Parameter]:
        return {field.attname: self._place(field.attname) for field in self.touched}

    def _returning(self, update: Compiled, *fields: models.Field[Any, Any]) -> Compiled:
        table = self.ops.quote_name(self.model._meta.db_table)
        return update + f" RETURNING {', '.join(f'{table}.{column}' for column in self._columns(fields))}"

    @functools.cached_property
    def _read(self) -> dict[Any, Any]:
        """What an entry takes over from the changed row: its fields, and the account's that they are read from."""
        of_entry, of_account = self.entry._meta.get_field, self.model._meta.get_field
        account: Any = of_entry("account")
        return {
            account: account.target_field,
            of_entry("balance_after"): of_account("balance"),
            of_entry("version_after"): of_account(self.version),
        }

    @functools.cached_property
    def _booking(self) -> Compiled:
        """INSERT the entry of what is in ``changed``."""
        names = (*GIVEN, *(field.attname for field in self.extras))
        given = {self.entry._meta.get_field(name): parameter(self.entry, name) for name in names}
        columns = ", ".join(self._columns((*self._read, *given)))
        values = ", ".join([*self._columns(self._read.values()), *["%s"] * len(given)])
        table = self.ops.quote_name(self.entry._meta.db_table)
        return Compiled(f"INSERT INTO {table} ({columns}) SELECT {values} FROM changed", tuple(given.values()))

    def _columns(self, fields: Iterable[Any]) -> list[str]:
        return [self.ops.quote_name(field.column) for field in fields]


GIVEN = ("amount", "idempotency_key", "transfer")
"""What an entry is given with each call; the rest of it is read from the changed row."""
_READ = ("account", "balance_after", "version_after")


def _is_extra(field: models.Field[Any, Any]) -> bool:
    """Whether an INSERT has to give the field a value that only Django knows."""
    left_out = field.generated or field.has_db_default() or isinstance(field, models.AutoField)
    return not left_out and field.name not in (*GIVEN, *_READ)
