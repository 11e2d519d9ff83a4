"""Conflicts over HTTP: entity tags from versions, conditional requests, problem details. For any versioned model."""

from django_lockstep.http.middleware import ConcurrencyMiddleware
from django_lockstep.http.preconditions import (
    MalformedPrecondition,
    PreconditionError,
    PreconditionFailed,
    PreconditionRequired,
    check_preconditions,
    etag,
    not_modified,
    require_match,
    seen_elsewhere,
)
from django_lockstep.http.problems import Problem, problem_of
from django_lockstep.http.views import require_if_match

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
