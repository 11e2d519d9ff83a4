"""The statements that `StatementRunner` sends: SQL of the query set API, with the INSERT of the entry added."""

from __future__ import annotations

import functools
import string
from collections.abc import Iterable
from typing import Any, Literal

from django.db import connections, models
from django.db.models import F

from accounts.contrib.compiled.compiling import Compiled, Parameter, compile_select, compile_update, parameter
from django_lockstep.locking.fields import version_field
from django_lockstep.locking.writes import auto_now_fields

WaitMode = Literal["queue", "nowait"]


class Statements:
    """Every statement for one account model on one database, compiled on first use.

    `WaitMode` says what to do where another session has the row locked: wait for it, in the queue of an advisory lock,
    or raise at once. Names of parameters: ``pk``, ``seen`` and ``next`` (versions), ``balance``, ``amount``,
    ``least`` (the lowest balance plus overdraft limit) and ``bound`` (the balance must be below it), ``queue`` (the key
    of an advisory lock), ``idempotency_key``, ``transfer``, and the names of the fields with ``auto_now``.
    """

    def __init__(self, model: type[models.Model], using: str) -> None:
        self.model = model
        self.using = using
        self.ops = connections[using].ops
        self.version = version_field(model).attname
        self.entry: type[models.Model] = model._meta.get_field("entries").related_model  # type: ignore[assignment]
        # The entry's fields whose value only Django can compute.
        self.extras = [
            field
            for field in self.entry._meta.concrete_fields
            if field.name not in (*ENTRY_PARAMETERS, "account", "balance_after", "version_after")
            and not (field.generated or field.has_db_default() or isinstance(field, models.AutoField))
        ]
        self.auto_now = auto_now_fields(model)
        self.rows: models.QuerySet[Any] = model._base_manager.using(using)
        self.row = self.rows.filter(pk=parameter(model, "pk"))

    @functools.cached_property
    def write(self) -> Compiled:
        """UPDATE the row to a balance if its version is the one read, and INSERT the entry, returning no rows."""
        # compile_update() keeps the WHERE of the query set: the same guard as in the plain methods.
        guarded = self.row.filter(**{self.version: self._parameter(self.version, "seen")})
        changes = {
            "balance": self._parameter("balance"),
            self.version: self._parameter(self.version, "next"),
            "entry_count": F("entry_count") + 1,
            **self._auto_now_parameters,
        }
        update = self._returning(compile_update(guarded, changes), *self._copied_fields.values())
        return fill_template("WITH changed AS ({update}) {entry}", update=update, entry=self._entry_insert)

    @functools.cached_property
    def lock_and_add(self) -> dict[WaitMode, Compiled]:
        """Lock the row, add an amount where overdraft limit and size allow it, INSERT the entry, return the row."""
        add = self._add()
        return {
            # MATERIALIZED keeps the locking CTE from being inlined; the UPDATE depends on it, so that it runs first.
            wait: fill_template(
                "WITH locked AS MATERIALIZED ({lock}), changed AS ({add}), booked AS ({entry}) SELECT * FROM changed",
                lock=lock,
                add=add,
                entry=self._entry_insert,
            )
            for wait, lock in self._locks().items()
        }

    def _locks(self) -> dict[WaitMode, Compiled]:
        """Return the statements that lock the row, and wait or do not."""
        # The key alone: the other columns are not read. Not by values(), which may rename it.
        read = compile_select(self.row.only("pk"))
        # A subquery that does not depend on the row is evaluated once (an InitPlan), and before the row is locked. As a
        # plain condition the function may be called for every row that is looked at.
        place = Compiled("%s", (Parameter("queue", models.BigIntegerField()),))
        queue = " AND (SELECT pg_advisory_xact_lock(" + place + ")) IS NOT NULL"
        return {
            "queue": read + queue + f" {self.ops.for_update_sql(no_key=True)}",
            "nowait": read + f" {self.ops.for_update_sql(nowait=True, no_key=True)}",
        }

    def _add(self) -> Compiled:
        """Return the UPDATE of the row in ``locked``, which returns it."""
        # What the CHECK constraint says, asked beforehand: a violated constraint would be an error and abort the
        # caller's transaction, where no row is an answer.
        allowed = {
            "balance__gte": self._parameter("balance", "least") - F("overdraft_limit"),
            "balance__lt": self._parameter("balance", "bound"),
        }
        changes = {
            "balance": F("balance") + self._parameter("balance", "amount"),
            self.version: F(self.version) + 1,
            "entry_count": F("entry_count") + 1,
            **self._auto_now_parameters,
        }
        (key,) = self._columns([self.model._meta.pk])
        table = self.ops.quote_name(self.model._meta.db_table)
        # Qualified: a column that `locked` lacked would be the outer table's, and every row would be its own key.
        mine = f" AND {table}.{key} = (SELECT locked.{key} FROM locked)"
        update = compile_update(self.rows.filter(**allowed), changes) + mine
        return self._returning(update, *self.model._meta.concrete_fields)

    def _parameter(self, name: str, called: str | None = None) -> Parameter:
        return parameter(self.model, name, called=called)

    @functools.cached_property
    def _auto_now_parameters(self) -> dict[str, Parameter]:
        return {field.attname: self._parameter(field.attname) for field in self.auto_now}

    def _returning(self, update: Compiled, *fields: models.Field[Any, Any]) -> Compiled:
        table = self.ops.quote_name(self.model._meta.db_table)
        return update + f" RETURNING {', '.join(f'{table}.{column}' for column in self._columns(fields))}"

    @functools.cached_property
    def _copied_fields(self) -> dict[Any, Any]:
        """The entry's fields that are copied from the changed row, each with its field of the account."""
        of_entry, of_account = self.entry._meta.get_field, self.model._meta.get_field
        account: Any = of_entry("account")
        return {
            account: account.target_field,
            of_entry("balance_after"): of_account("balance"),
            of_entry("version_after"): of_account(self.version),
        }

    @functools.cached_property
    def _entry_insert(self) -> Compiled:
        """INSERT the entry of the row in ``changed``."""
        names = (*ENTRY_PARAMETERS, *(field.attname for field in self.extras))
        parameters = {self.entry._meta.get_field(name): parameter(self.entry, name) for name in names}
        columns = ", ".join(self._columns((*self._copied_fields, *parameters)))
        values = ", ".join([*self._columns(self._copied_fields.values()), *["%s"] * len(parameters)])
        table = self.ops.quote_name(self.entry._meta.db_table)
        return Compiled(f"INSERT INTO {table} ({columns}) SELECT {values} FROM changed", tuple(parameters.values()))

    def _columns(self, fields: Iterable[Any]) -> list[str]:
        return [self.ops.quote_name(field.column) for field in fields]


ENTRY_PARAMETERS = ("amount", "idempotency_key", "transfer")
"""The entry's fields that are parameters of each call; the others are copied from the changed row."""


def fill_template(template: str, **parts: Compiled | str) -> Compiled:
    """Return the statement of a template, with the parts in place of their names in braces."""
    whole = Compiled("", ())
    for text, name, _, _ in string.Formatter().parse(template):
        whole = whole + text + (parts[name] if name else "")
    return whole
