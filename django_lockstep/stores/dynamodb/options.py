"""The options of a DynamoDB store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django_lockstep.locking.durations import Duration, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoOptions:
    """The options of one store in ``LOCKSTEP_STORES``, in lower case."""

    table: str
    region: str | None = None
    """None: as boto3 finds it."""
    endpoint_url: str | None = None
    """None: AWS's own. Credentials are always those that boto3 finds."""
    timeout: Duration = 5
    """For how long one request may wait for its answer, before it is sent again."""


def parse_options(options: Mapping[str, Any]) -> DynamoOptions:
    """Return the options; raise ``TypeError`` or ``ValueError`` that names the option and the rule."""
    names = {name.upper() for name in DynamoOptions.__dataclass_fields__}
    if unknown := set(options) - names:
        raise ValueError(f"unknown {', '.join(sorted(unknown))}; a DynamoDB store has {', '.join(sorted(names))}")
    if not options.get("TABLE"):
        raise ValueError(f"TABLE must be the name of a table, not {options.get('TABLE')!r}")
    for name in ("TABLE", "REGION", "ENDPOINT_URL"):
        if not isinstance(options.get(name), str | None):
            raise TypeError(f"{name} must be a string, not {options[name]!r}")
    parsed = DynamoOptions(**{name.lower(): value for name, value in options.items()})
    seconds(parsed.timeout, name="TIMEOUT")
    return parsed
