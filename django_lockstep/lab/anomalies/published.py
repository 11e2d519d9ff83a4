"""Published results for PostgreSQL, to compare with the results of this server."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from django_lockstep.lab.anomalies.results import Possibility

__all__ = ["PUBLISHED", "SOURCES", "published"]

SOURCES = (
    "Martin Kleppmann, Hermitage, https://github.com/ept/hermitage: PostgreSQL's read committed and above",
    "PostgreSQL documentation, 13.2, https://www.postgresql.org/docs/current/transaction-iso.html: read uncommitted",
)
"""Where the published results can be found."""

_READ_COMMITTED = frozenset({"PMP", "P4", "G-single", "G2-item", "G2"})

PUBLISHED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        # PostgreSQL accepts the name and gives READ COMMITTED.
        "read uncommitted": _READ_COMMITTED,
        "read committed": _READ_COMMITTED,
        "repeatable read": frozenset({"G2-item", "G2"}),
        "serializable": frozenset(),
    }
)
"""The anomalies that are possible, by isolation level; all others are prevented."""


def published(anomaly: str, level: str) -> Possibility:
    """Return the published result for the anomaly at this level of PostgreSQL."""
    return "possible" if anomaly in PUBLISHED[level] else "prevented"
