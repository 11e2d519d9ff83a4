"""Conflicts over HTTP: entity tags from versions, conditional requests, honest answers. For any versioned model."""

from accounts.http.errors import (
    MalformedPrecondition,
    PreconditionError,
    PreconditionFailed,
    PreconditionRequired,
)
from accounts.http.etags import etag
from accounts.http.middleware import ConcurrencyMiddleware
from accounts.http.preconditions import check_preconditions, not_modified, require_match, seen_elsewhere
from accounts.http.problems import Problem, problem_of
from accounts.http.views import require_if_match

__all__ = [
    "ConcurrencyMiddleware",
    "MalformedPrecondition",
    "PreconditionError",
    "PreconditionFailed",
    "PreconditionRequired",
    "Problem",
    "check_preconditions",
    "etag",
    "not_modified",
    "problem_of",
    "require_if_match",
    "require_match",
    "seen_elsewhere",
]
