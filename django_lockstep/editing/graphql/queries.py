"""The queries: what is out, and who has it."""

from __future__ import annotations

from typing import Annotated, Any

import strawberry
import strawberry_django
from strawberry.types import Info

from django_lockstep.editing import requests
from django_lockstep.editing.graphql.types import EditResult
from django_lockstep.editing.operations import status_of

_TABLE = strawberry.argument(description="The model's label, such as shop.Seat.")
Table = Annotated[str, _TABLE]
OptionalTable = Annotated[str | None, _TABLE]
Record = Annotated[str | None, strawberry.argument(description="The primary key as text; without it, the whole table.")]
Token = Annotated[
    str | None, strawberry.argument(description="The check-out's token; without it, the editor's latest.")
]
OwnToken = Annotated[
    str | None,
    strawberry.argument(description="The token of a check-out; the result says whether it lasts."),
]


def user_of(info: Info) -> Any:
    return info.context.request.user


def _tables(info: Info) -> list[EditResult]:
    return requests.table_statuses(user_of(info))


def _status(info: Info, table: Table, *, record: Record = None, token: OwnToken = None) -> EditResult:
    target = requests.target_for(user_of(info), table, record)
    return status_of(target, token=token)


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
