"""Cursor pagination."""

from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from ninja import Field, Schema
from ninja.errors import HttpError
from ninja.errors import ValidationError as InvalidCursor
from ninja.pagination import CursorPagination
from pydantic import ValidationError as InvalidMember

__all__ = ["Pages"]


class Pages(CursorPagination):
    """The framework's cursor pagination, by primary key; any invalid cursor is 400."""

    class Input(Schema):
        """The query parameters."""

        page_size: int = Field(100, ge=1, le=100)
        cursor: str = Field("", max_length=1000, description="The cursor in `next` or `previous` of another page.")

    class Cursor(CursorPagination.Cursor):
        """The position at which a page begins."""

        @classmethod
        def from_encoded_param(cls, encoded_param: str | None, context: Any = None) -> CursorPagination.Cursor:
            """Return the cursor. Raises ``HttpError`` 400 where it cannot be decoded."""
            try:
                return super().from_encoded_param(encoded_param, context)
            except (InvalidCursor, InvalidMember) as error:
                raise _invalid_cursor() from error

    def _find_position(self, queryset: QuerySet[Any], cursor: CursorPagination.Cursor) -> QuerySet[Any]:
        try:
            # A text key accepts any string, but PostgreSQL's text cannot contain NUL.
            if cursor.p is not None and ("\0" in cursor.p or queryset.model._meta.pk.to_python(cursor.p) is None):
                raise _invalid_cursor()
        except ValidationError as error:
            raise _invalid_cursor() from error
        return super()._find_position(queryset, cursor)


def _invalid_cursor() -> HttpError:
    return HttpError(400, "The cursor is invalid: use one that this list returned")
