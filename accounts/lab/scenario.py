"""What is raced: the one vocabulary of the explorer, the simulator, the tests and the pages."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Scenario"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A race: where it starts, who runs, and what has to hold at the end.

    The explorer gives each actor a thread, the simulator a process; for the latter everything here must be picklable
    (functions of a module, instances of module-level classes).
    """

    set_up: Callable[[], Any]
    """Makes the rows of one run, committed; what it returns goes to the actors, ``invariant`` and ``observe``."""
    actors: Mapping[str, Callable[[Any], Any]] | Sequence[Callable[[Any], Any]]
    """Who runs at the same time, by name; a sequence is called A, B, C and so on."""
    invariant: Callable[[Any], bool] | None = None
    """Whether the end is one that the code promises."""
    observe: Callable[[Any], Any] | None = None
    """The end, as something short to print and to compare."""

    def cast(self) -> dict[str, Callable[[Any], Any]]:
        """Return the actors by name. Raises ``ValueError`` for none, and for more than there are letters."""
        if not 1 <= len(self.actors) <= len(string.ascii_uppercase):
            raise ValueError(f"A scenario has 1 to {len(string.ascii_uppercase)} actors, not {len(self.actors)}")
        if isinstance(self.actors, Mapping):
            return dict(self.actors)
        return dict(zip(string.ascii_uppercase, self.actors, strict=False))
