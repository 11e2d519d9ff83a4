"""Why a conditional request is refused, each with its HTTP status.

::

    PreconditionError
    ├── PreconditionRequired    428   RFC 6585, section 3
    ├── PreconditionFailed      412   RFC 9110, section 15.5.13
    └── MalformedPrecondition   400
"""

from __future__ import annotations

from typing import Any

from django_lockstep.errors import LockstepError

__all__ = ["MalformedPrecondition", "PreconditionError", "PreconditionFailed", "PreconditionRequired"]


class PreconditionError(LockstepError):
    """A conditional request cannot be carried out.

    ``etag`` is the tag of what is there now, None where nothing is or where it is not the client's business.
    Without a message the first line of the class's docstring is the message.
    """

    status = 400

    def __init__(self, message: str = "", *, etag: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])
        self.etag = etag

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, {"etag": self.etag}


class PreconditionRequired(PreconditionError):
    """Changing this needs the header If-Match with the ETag that was read."""

    status = 428


class PreconditionFailed(PreconditionError):
    """It was changed since it was read."""

    status = 412


class MalformedPrecondition(PreconditionError):
    """A header of the request is no list of entity tags."""

    status = 400
