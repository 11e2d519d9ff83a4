"""What is said where code does something else on the same schedule than the last time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django_lockstep.lab.explorer.origins import Origin, line_of

__all__ = ["CAUSES", "Pending", "other_statements"]

Pending = Mapping[int, tuple[str, Origin | None]]
"""The statements that actors stand before, with the lines that send them."""

CAUSES = """\
Usual causes, and what to do:
- a cache that an earlier run filled: clear or fill it in set_up, which runs before every schedule
- random values or the time: fix them in set_up, or pass them to the actors from there
- state outside the database, such as variables of a module, files or another service: put it back in set_up"""


def other_statements(names: Sequence[str], moves: int, before: Pending, now: Pending) -> str:
    """Return the message that names both lists of statements."""
    return (
        f"After {moves} equal moves the actors stood before other statements than the last time.\n"
        f"Then: {_listed(names, before)}\nNow:  {_listed(names, now)}\n{CAUSES}"
    )


def _listed(names: Sequence[str], pending: Pending) -> str:
    return "; ".join(f"{names[actor]}: {text}{_at(origin)}" for actor, (text, origin) in pending.items())


def _at(origin: Origin | None) -> str:
    return f" (at {line_of(origin)})" if origin else ""
