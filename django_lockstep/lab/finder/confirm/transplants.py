"""Requests and calls of one test made in another one: with the rows that are there, and by a user who is there."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, models, transaction
from django.urls import resolve

from django_lockstep.lab.explorer import Response
from django_lockstep.lab.explorer.effects.catalog import quote_name
from django_lockstep.lab.explorer.effects.operations import text_of
from django_lockstep.lab.finder.confirm.clones import KnownUser
from django_lockstep.lab.finder.confirm.forks import Actor, RequestActor, answer_alone
from django_lockstep.lab.finder.derive.history import History, Row, UnitStep
from django_lockstep.lab.finder.derive.pair_races import lock_pairs
from django_lockstep.lab.finder.errors import CannotClone
from django_lockstep.lab.finder.record.fingerprints import NULL, Fingerprints
from django_lockstep.lab.finder.record.interception import Call
from django_lockstep.lab.finder.record.reader import StatementReader, instances, is_of_interest
from django_lockstep.lab.finder.record.recording import RecordedStatement, Table, Unit
from django_lockstep.lab.finder.record.units import Transactions
from django_lockstep.lab.wording import gettext as _

Identity = Mapping[str, str]
"""What a row can be found by: the values of its columns that are unique, the primary key among them."""


@dataclass(frozen=True)
class DryRun:
    """What a request or call answered alone, and what it did: with the keys as they are, which stay in memory."""

    answer: Any
    history: History

    @classmethod
    def of(cls, actor: Callable[[Any], Any]) -> DryRun:
        """Make it. What it writes stays there, and its errors are raised."""
        tables: dict[str, Table] = {}
        # Without a key: values are needed as they are, to be put into other requests.
        reader = StatementReader(
            Fingerprints(None), lambda listed: tables.update({table.name: table for table in listed})
        )
        statements: list[RecordedStatement] = []
        transactions = Transactions()

        def note(sql: Any, params: Any, many: bool, context: Any) -> None:
            driver = context["connection"].connection
            text = text_of(sql, driver)
            if is_of_interest(text) and hasattr(driver, "pgconn"):
                transaction = transactions.current(context["connection"])
                statements.append(reader.read(text, params, context, keys={}, many=many, transaction=transaction))

        with transactions.counted():
            answer = answer_alone(actor, note)
        unit = Unit(test="", kind="request", name="", number=0, statements=tuple(statements))
        return cls(answer, History(unit, tables))

    @property
    def is_accepted(self) -> bool:
        """Whether a request was not refused."""
        return not isinstance(self.answer, Response) or self.answer.status < 400

    @cached_property
    def changed(self) -> frozenset[Row]:
        """The rows that it changed or locked, less those that it made."""
        rows = (self.history.locked_rows(step) for step in self.history.steps)
        return frozenset().union(*rows) - self.history.inserted_rows

    @cached_property
    def met(self) -> Mapping[Row, Identity]:
        """The rows that it read, changed or referred to, less those that it made."""
        identities: dict[Row, dict[str, str]] = {}
        for step in self.history.steps:
            for (table, key), values in self._met_in(step):
                if (table, key) not in self.history.inserted_rows and len(self.history.table(table).key) == 1:
                    named = {self.history.table(table).key[0]: key.removeprefix("=")}
                    identities.setdefault((table, key), named).update(values)
        return identities

    def _met_in(self, step: UnitStep) -> Iterator[tuple[Row, Identity]]:
        history = self.history
        for row in step.statement.read:
            columns = {index.columns[0] for index in history.table(row.table).unique if len(index.columns) == 1}
            if key := history.key_of(step, row):
                unique = {name: text for name, text in row.values.items() if name in columns and text != NULL}
                yield (row.table, key), {name: text.removeprefix("=") for name, text in unique.items()}
        for locked in history.locked_rows(step) | history.references(step, step.template.table):
            yield locked, {}

    def rows(self, table: str) -> list[Identity]:
        """Return its rows of a table: those that it changed or locked, then the others; both in the order of keys."""
        met = {row: row[1].removeprefix("=") for row in self.met if row[0] == table}
        # Numbers as numbers, so that 10 comes after 9.
        order = {row: (row not in self.changed, int(key) if key.isdigit() else 0, key) for row, key in met.items()}
        return [self.met[row] for row in sorted(met, key=lambda row: order[row])]

    def interferes_with(self, partner: DryRun) -> bool:
        """Whether it changes or locks a row that the other one met, or writes into a table that the other one reads."""
        writes = self.history.writes("INSERT", "UPDATE", "DELETE")
        anywhere = {step.template.table for step in writes if not self.history.changed_rows(step)}
        looked = {table for step in partner.history.steps for table in step.template.tables}
        return bool(self.changed & partner.met.keys() or anywhere & looked)


_OF_REQUEST = re.compile(r"REQUEST_METHOD|PATH_INFO|QUERY_STRING|CONTENT_TYPE|HTTP_.*")
_OF_USER = re.compile(r"HTTP_(HOST|COOKIE|(?!X_CSRF).*(AUTH|TOKEN|API_KEY).*)")
_KEY_NAME = re.compile(r"(^|.*_)(pk|id|key)s?")
_PART = re.compile(r'(;\s*name="([^"]*)"\r\n(?:Content-Type: [^\r]*\r\n)?\r\n)(.*?)(?=\r\n--)', re.DOTALL)
"""A field of a form in parts, which is not a file."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A request that a test has sent, or a call that it has made."""

    test: str
    number: int
    actor: Actor
    trial: DryRun
    user: KnownUser | None

    @classmethod
    def of(cls, actor: Actor, *, test: str = "", number: int = 0) -> Captured:
        """Make it alone. What it writes stays there, and its errors are raised."""
        user = KnownUser.of(actor.environ) if isinstance(actor, RequestActor) else None
        return cls(test, number, actor, DryRun.of(actor), user)

    def moved_to(self, place: Actor, trial: DryRun) -> Actor:
        """Return it as it would be made beside another one of its kind, of which a trial is known.

        Each row that it met becomes the row of the same table that the other one met. A request's user is the other
        one's, unless theirs may do something else: then a copy of theirs is made. Raises `CannotClone` if a row in its
        path, or among its arguments, has no counterpart.
        """
        keys = _Keys.between(self.trial, trial)
        if isinstance(self.actor, Call):
            return _call_with_keys(self.actor, keys)
        if isinstance(place, RequestActor):
            return self._sent_beside(place, self.actor, keys)
        headers = self.user.log_in_copy() if self.user else {}
        return _with_keys(replace(self.actor, environ={**self.actor.environ, **headers}), keys)

    def _sent_beside(self, place: RequestActor, request: RequestActor, keys: _Keys) -> RequestActor:
        environ = {name: value for name, value in place.environ.items() if not _OF_REQUEST.fullmatch(name)}
        own = (name for name in request.environ if _OF_REQUEST.fullmatch(name) and not _OF_USER.fullmatch(name))
        environ |= {name: request.environ[name] for name in own}
        environ |= self._by_user_of(place, request)
        return _with_keys(replace(request, environ=environ, call=place.call), keys)

    def _by_user_of(self, place: RequestActor, request: RequestActor) -> dict[str, Any]:
        there = KnownUser.of(place.environ)
        if self.user is None or (there is not None and self.user.may_the_same_as(there)):
            headers = {name: value for name, value in place.environ.items() if _OF_USER.fullmatch(name)}
        else:
            headers = self.user.log_in_copy()
        # The token in a form is compared with the cookie that came with it.
        csrf = re.compile(rf"(?<![^; ]){re.escape(settings.CSRF_COOKIE_NAME)}=[^;]*")
        own = csrf.search(request.environ.get("HTTP_COOKIE", ""))
        cookies = [csrf.sub("", headers.get("HTTP_COOKIE", "")), own[0] if own else ""]
        return {**headers, "HTTP_COOKIE": "; ".join(filter(None, cookies))}


def in_other_order(request: RequestActor, trial: DryRun) -> RequestActor:
    """Return the request with two rows of one table exchanged: the first ones that its trial has locked in turn.

    Raises `CannotClone` if it has locked no two, and where the request does not name them.
    """
    pairs = (pair for pair in lock_pairs(trial.history) if pair.tables[0] == pair.tables[1])
    if (pair := next(pairs, None)) is None:
        raise CannotClone(_("alone it locks no two rows of one table in turn here"))
    table = pair.tables[0]
    first, second = (key.removeprefix("=") for _, key in pair.rows)
    keys = _Keys({first: [(table, second)], second: [(table, first)]}, {table: _names(table, trial)})
    exchanged = _with_keys(request, keys)
    if _is_same(exchanged, request):
        raise CannotClone(_("it does not name the rows of {table} that it locks", table=table))
    return exchanged


def for_another_object(actor: Actor, trial: DryRun) -> Actor:
    """Return the request or call for another row of a table, in place of one that it names and its trial has met.

    If there is no other one, the row is copied. Raises `CannotClone` if it names none, and where no copy can be made.
    """
    for row in sorted(trial.met, key=lambda row: (row not in trial.changed, row)):
        identity = trial.met[row]
        # Whether it names the row is known before a copy is made, which would be there afterwards.
        plain = {column: str(int(value) + 1) if value.isdigit() else f"{value}2" for column, value in identity.items()}
        if not _is_same(_for_row(actor, trial, row, plain), actor) and (other := _other_row(trial, row)):
            return _for_row(actor, trial, row, other)
    raise CannotClone(_("it names no row of a table that has another one, or of which a copy can be made"))


def _for_row(actor: Actor, trial: DryRun, row: Row, other: Identity) -> Actor:
    counterparts = {value: [(row[0], other.get(column))] for column, value in trial.met[row].items()}
    keys = _Keys(counterparts, {table: _names(table, trial) for table, _ in trial.met})
    return _call_with_keys(actor, keys) if isinstance(actor, Call) else _with_keys(actor, keys)


def _other_row(trial: DryRun, row: Row) -> Identity:
    """Return how another row of the table is found, one that is there or a copy; empty if there is none."""
    table, identity = trial.history.table(row[0]), trial.met[row]
    name, (key,) = ".".join(map(quote_name, table.name.split("."))), map(quote_name, table.key)
    columns, this = ", ".join(f"{quote_name(column)}::text" for column in identity), [identity[table.key[0]]]
    # What is unique has a number behind it.
    unique = {index.columns[0] for index in table.unique if len(index.columns) == 1}
    names = {column: quote_name(column) for column in table.types if column not in table.key}
    copied = {column: f"{text} || '2'" if column in unique else text for column, text in names.items()}
    copy = f"INSERT INTO {name} ({', '.join(map(quote_name, copied))}) SELECT {', '.join(copied.values())}"
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {name} WHERE {key}::text <> %s ORDER BY 1 LIMIT 1", this)
        if (other := cursor.fetchone()) is None and copied:
            # What the database refuses is no row that could be there.
            with suppress(DatabaseError), transaction.atomic():
                cursor.execute(f"{copy} FROM {name} WHERE {key}::text = %s RETURNING {columns}", this)
                other = cursor.fetchone()
    return dict(zip(identity, other, strict=True)) if other else {}


def _is_same(left: Actor, right: Actor) -> bool:
    if isinstance(left, Call) or isinstance(right, Call):
        return left == right
    names = ("PATH_INFO", "QUERY_STRING")
    return left.body == right.body and all(left.environ.get(name, "") == right.environ.get(name, "") for name in names)


def _with_keys(request: RequestActor, keys: _Keys) -> RequestActor:
    route, environ = _route(request), dict(request.environ)
    environ["PATH_INFO"] = _path(environ["PATH_INFO"], keys)
    environ["QUERY_STRING"] = _form(environ.get("QUERY_STRING", ""), keys)
    body = _body(request.body, str(environ.get("CONTENT_TYPE", "")), keys)
    moved = RequestActor({**environ, "CONTENT_LENGTH": str(len(body))}, body, request.call)
    if _route(moved) != route:
        raise CannotClone(_("its path would become one of {name}", name=moved.name))
    return moved


def _route(request: RequestActor) -> str:
    if not request.name:
        raise CannotClone(_("its path leads to no view here"))
    return request.name


def _call_with_keys(call: Call, keys: _Keys) -> Call:
    names = chain(inspect.signature(call.function).parameters, repeat(""))
    args = tuple(_value(value, name, keys) for name, value in zip(names, call.args, strict=False))
    kwargs = {name: _value(value, name, keys) for name, value in call.kwargs.items()}
    rows = instances([*args, *kwargs.values()])
    # Read again when the call is made, all of them: its caller was in another test.
    loaded = tuple([field.attname for field in row._meta.concrete_fields] for row in rows)
    return Call(call.function, args, kwargs, loaded)


@dataclass(frozen=True, slots=True)
class _Keys:
    """What rows are called in one test, and in another one."""

    counterparts: Mapping[str, list[tuple[str, str | None]]]
    """By value: the tables whose rows it finds, and what finds the row there; None where there is no such row."""
    names: Mapping[str, frozenset[str]]
    """What fields that refer to a table may be called."""

    @classmethod
    def between(cls, source: DryRun, target: DryRun) -> _Keys:
        """Pair the rows of each table by their places among those that each side met, the changed tables first."""
        counterparts: dict[str, list[tuple[str, str | None]]] = {}
        tables = list(dict.fromkeys([*sorted(row[0] for row in source.changed), *(row[0] for row in source.met)]))
        for table in tables:
            there = target.rows(table)
            for number, row in enumerate(source.rows(table)):
                counterpart = there[number] if number < len(there) else {}
                for column, value in row.items():
                    counterparts.setdefault(value, []).append((table, counterpart.get(column)))
        return cls(counterparts, {table: _names(table, source) for table in tables})

    def argument(self, name: str, value: str) -> str:
        """Return what stands for an argument of a path. Raises `CannotClone` for a row without counterpart."""
        table, counterpart = self._best(name, value)
        if counterpart is None:
            raise CannotClone(_("its row of {table} has no counterpart here", table=table))
        return counterpart

    def field(self, name: str, value: str) -> str:
        """Return what stands for a field's value; a number whose name does not say that it is a key is an amount."""
        table, counterpart = self._best(name, value)
        is_key = not name or self._is_named(table, name) or _KEY_NAME.fullmatch(name) or not value.isdigit()
        return counterpart if is_key and counterpart is not None else value

    def row(self, instance: models.Model) -> models.Model:
        """Return the row that stands for an instance. Raises `CannotClone` if there is none."""
        table = instance._meta.db_table
        keys = (key for owner, key in self.counterparts.get(str(instance.pk), ()) if owner == table)
        if (key := next(keys, None)) is None:
            raise CannotClone(_("its row of {table} has no counterpart here", table=table))
        return type(instance)._base_manager.using(instance._state.db).get(pk=key)

    def _best(self, name: str, value: str) -> tuple[str, str | None]:
        """Return the table that the name speaks of, or of none the first one, with what finds the row there."""
        matches = self.counterparts.get(value, [("", value)])
        named = [pair for pair in matches if self._is_named(pair[0], name)]
        # The same number may be the key of a row of any table.
        speaks_of_another = not named and any(self._is_named(table, name) for table in self.names)
        return ("", value) if speaks_of_another else (named or matches)[0]

    def _is_named(self, table: str, name: str) -> bool:
        return any(word in name.lower() for word in self.names.get(table, ()))


def _names(table: str, trial: DryRun) -> frozenset[str]:
    tables = trial.history.tables.values()
    keys = (key for owner in tables for key in owner.foreign_keys if key.parent == table)
    referring = {key.columns[0].removesuffix("_id") for key in keys}
    model = trial.history.table(table).model.rpartition(".")[2].lower()
    return frozenset(filter(None, {model, *referring}))


def _path(path: str, keys: _Keys) -> str:
    match = resolve(path)
    names = {str(value): str(name) for name, value in [*enumerate(match.args), *match.kwargs.items()]}
    before, moved = "", []
    for part in path.split("/"):
        # The name with what stands before it: orders/<int:pk>/
        moved.append(keys.argument(f"{before} {names[part]}", part) if part in names else part)
        before = part
    return "/".join(moved)


def _form(text: str, keys: _Keys) -> str:
    return urlencode([(name, keys.field(name, value)) for name, value in parse_qsl(text, keep_blank_values=True)])


def _body(body: bytes, content_type: str, keys: _Keys) -> bytes:
    if "json" in content_type:
        with suppress(ValueError):
            return json.dumps(_value(json.loads(body), "", keys)).encode()
    elif content_type.startswith("application/x-www-form-urlencoded"):
        return _form(body.decode(errors="replace"), keys).encode()
    elif content_type.startswith("multipart/form-data"):
        text = body.decode(errors="surrogateescape")
        parts = _PART.sub(lambda match: match[1] + keys.field(match[2], match[3]), text)
        return parts.encode(errors="surrogateescape")
    return body


def _value(value: Any, name: str, keys: _Keys) -> Any:
    """Return what stands for a value in JSON, or for an argument."""
    if isinstance(value, dict):
        return {member: _value(inner, str(member), keys) for member, inner in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(_value(inner, name, keys) for inner in value)
    if type(value) in {str, UUID}:
        return type(value)(keys.field(name, str(value)))
    # By the type: isinstance() would have a lazy object evaluated.
    if issubclass(type(value), models.Model):
        return value if value._state.adding else keys.row(value)
    # Keys that the database gives are not negative.
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        text = keys.field(name, str(value))
        return int(text) if text.isdigit() else text
    return value
