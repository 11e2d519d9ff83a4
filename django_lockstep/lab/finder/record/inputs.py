"""What came into a unit of work from outside: the values of a request, the arguments of a call.

Nothing is evaluated that the project's code has not evaluated: that could send statements.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import FrameType
from urllib.parse import parse_qsl

from django.http import HttpRequest

__all__ = ["call_inputs", "request_inputs"]


def request_inputs(request: HttpRequest, body: bytes) -> Iterator[object]:
    """Yield the values in the query, the path and the body."""
    yield from _pairs(request.META.get("QUERY_STRING", ""))
    match = request.resolver_match
    if match is not None:
        yield from match.args
        yield from match.kwargs.values()
    content_type = request.META.get("CONTENT_TYPE", "")
    if "json" in content_type:
        yield from _json_values(body)
    elif content_type.startswith("application/x-www-form-urlencoded"):
        yield from _pairs(body.decode(errors="replace"))
    elif (form := vars(request).get("_post")) is not None:  # a form in parts, that the view has read
        for _, values in form.lists():
            yield from values


def _pairs(text: str) -> Iterator[str]:
    try:
        yield from (value for _, value in parse_qsl(text))
    except ValueError:  # more fields than it takes
        return


def _json_values(body: bytes) -> Iterator[object]:
    try:
        waiting = [json.loads(body)]
    except (ValueError, RecursionError):
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        else:
            yield value


def call_inputs(frame: FrameType) -> Iterator[object]:
    """Yield the plain values among the arguments; what is computed from an object is not from outside."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = frame.f_locals
    for name in names:
        value = values.get(name)
        # By the type alone: to compare or to print a model's instance may send a query.
        if value is not None and type(value).__module__ in {"builtins", "decimal", "datetime", "uuid"}:
            yield from value if isinstance(value, list | tuple) else (value,)
