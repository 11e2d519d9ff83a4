"""The queries and the mutations; each mutation is one transaction of `django_lockstep.editing.operations`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from enum import Enum
from typing import Annotated, Any

import strawberry
import strawberry_django
from strawberry.types import Info

from django_lockstep.editing import operations, requests
from django_lockstep.editing.graphql.types import CheckOutOptions, EditResult, TransitionInput
from django_lockstep.editing.results import StatusTransition

_TABLE = strawberry.argument(description="The model's label, such as shop.Seat.")
Table = Annotated[str, _TABLE]
OptionalTable = Annotated[str | None, _TABLE]
Record = Annotated[str | None, strawberry.argument(description="The primary key as text; without it, the whole table.")]
Token = Annotated[
    str | None, strawberry.argument(description="The check-out's token; without it, the editor's latest.")
]
OwnToken = Annotated[
    str | None, strawberry.argument(description="The token of a check-out; the result says whether it lasts.")
]
Ttl = Annotated[float | None, strawberry.argument(description="Seconds; at most LOCKSTEP_EDIT_API_MAX_TTL.")]
Change = Annotated[
    TransitionInput, strawberry.argument(name="wanted", description="The change, with the statuses that are expected.")
]
Options = Annotated[CheckOutOptions | None, strawberry.argument(description="Without them, the defaults.")]


def user_of(info: Info) -> Any:
    return info.context.request.user


def _tables(info: Info) -> list[EditResult]:
    return requests.table_statuses(user_of(info))


def _status(info: Info, table: Table, *, record: Record = None, token: OwnToken = None) -> EditResult:
    target = requests.target_for(user_of(info), table, record)
    return operations.status_of(target, token=token)


def _checked_out(info: Info, table: OptionalTable = None) -> list[EditResult]:
    user = user_of(info)
    target = None if table is None else requests.target_for(user, table)
    return list(requests.checked_out_by(user, target))


@strawberry.type(description="What is out, of what the user may see.")
class Query:
    """Looking needs the permission ``view`` or ``change`` for the table."""

    # Fields of strawberry_django run in a thread where a project serves them from an asynchronous schema of its own.
    tables = strawberry_django.field(_tables, description="The status of every table that the user may see.")
    status = strawberry_django.field(
        _status, description="The status of a table or a record, and of what it refers to."
    )
    checked_out = strawberry_django.field(
        _checked_out, description="What is checked out: a table's records; without a table, everything."
    )


def _transition(info: Info, change: Change) -> EditResult:
    return requests.make_transition(user_of(info), StatusTransition(**_plain(change)))


def _taking(operation: Callable[..., EditResult]) -> Callable[..., EditResult]:
    def resolve(info: Info, table: Table, *, record: Record = None, options: Options = None) -> EditResult:
        plain = _plain(options or CheckOutOptions())
        return requests.run_operation(operation, user_of(info), table, record, **plain)

    return resolve


def _check_in(info: Info, table: Table, *, record: Record = None, token: Token = None) -> EditResult:
    return requests.run_operation(operations.check_in, user_of(info), table, record, token=token)


def _extend(info: Info, table: Table, *, record: Record = None, token: Token = None, ttl: Ttl = None) -> EditResult:
    return requests.run_operation(operations.extend, user_of(info), table, record, token=token, ttl=ttl)


def _plain(value: Any) -> dict[str, Any]:
    """Return the input's members, with the values of enums in place of them."""

    def plain(item: Any) -> Any:
        if isinstance(item, list):
            return [plain(member) for member in item]
        return item.value if isinstance(item, Enum) else item

    return {name: plain(item) for name, item in asdict(value).items()}


@strawberry.type(description="Checking out and in.")
class Mutation:
    """Every mutation needs the permission ``change`` for the table."""

    transition = strawberry_django.mutation(
        _transition,
        description="Change the statuses of a table or record and of its references, if all are as expected.",
    )
    check_out = strawberry_django.mutation(
        _taking(operations.check_out),
        description="Check out a table or a record, with what it refers to; all or nothing.",
    )
    take_over = strawberry_django.mutation(
        _taking(operations.take_over),
        description="Check out, and end the check-outs in the way; those of others with take_over_editlock alone.",
    )
    check_in = strawberry_django.mutation(_check_in, description="End a check-out, and release all its locks.")
    extend = strawberry_django.mutation(_extend, description="Let a check-out last for ttl from now.")
