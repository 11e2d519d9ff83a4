"""The message for code that did something else the last time on the same schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django_lockstep.lab.explorer.effects.origins import Origin, line_of

__all__ = ["CAUSES", "Pending", "describe_other_statements"]

Pending = Mapping[int, tuple[str, Origin | None]]
"""The next statement of each actor, with the line that sends it."""

CAUSES = """\
Usual causes, and what to do:
- a cache that an earlier run filled: clear or fill it in set_up, which runs before every schedule
- random values or the time: fix them in set_up, or pass them to the actors from there
- state outside the database, such as variables of a module, files or another service: put it back in set_up"""


def describe_other_statements(names: Sequence[str], moves: int, before: Pending, now: Pending) -> str:
    """Return a message with both lists of statements, and the usual causes."""
    return (
        f"After {moves} equal moves the next statements of the actors were different from the last time.\n"
        f"Then: {_listed(names, before)}\nNow:  {_listed(names, now)}\n{CAUSES}"
    )


def _listed(names: Sequence[str], pending: Pending) -> str:
    return "; ".join(f"{names[actor]}: {text}{_at(origin)}" for actor, (text, origin) in pending.items())


def _at(origin: Origin | None) -> str:
    return f" (at {line_of(origin)})" if origin else ""
