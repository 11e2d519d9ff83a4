"""Mixtures: two strategies that change the same accounts at the same time, and whether they may."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from accounts.engine import EngineName
from accounts.strategies import STRATEGIES, Strategy
from django_lockstep.lab.simulator.report import LoadRow
from django_lockstep.lab.wording import listed

__all__ = ["Mixture", "advice_on_mixtures", "pairs_of", "strategies_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Strategies that share accounts: the workers take them in turn, so that half of them use each of two."""

    parts: tuple[Strategy, ...]
    """The strategies, bound to one model and database."""

    @property
    def name(self) -> str:
        """Their names, joined with ``+``."""
        return "+".join(part.name for part in self.parts)

    @property
    def safe(self) -> bool:
        """Whether they are meant to lose no update of each other's."""
        # An advisory lock keeps out only those who take it, so that such a strategy is safe alone and not in company.
        return all(part.safe and not part.needs_all_writers for part in self.parts)

    @property
    def guarantee(self) -> str:
        """What each relies on."""
        return " ".join(f"{part.name}: {part.guarantee}" for part in self.parts)

    @property
    def engine(self) -> EngineName | None:
        """The engine that all are bound to."""
        return self.parts[0].engine

    @property
    def has_counterpart(self) -> bool:
        """Whether the compiled engine runs any of them differently."""
        return any(part.has_counterpart for part in self.parts)


def pairs_of(strategies: Iterable[Strategy]) -> list[Mixture]:
    """Return all mixtures of two of these strategies."""
    return [Mixture(parts=pair) for pair in combinations(strategies, 2)]


def strategies_of(name: str) -> tuple[Strategy, ...]:
    """Return the strategies of a mixture's name; of a strategy's name that one."""
    return tuple(STRATEGIES[part] for part in name.split("+"))


def advice_on_mixtures(rows: Sequence[LoadRow]) -> tuple[str, ...]:
    """Return sentences about the mixtures that lose updates and those that may be used; none without measurements."""
    wrong = [row for row in rows if row.status not in {"correct", "untested"}]
    correct = [row for row in rows if row.status == "correct"]
    return (
        *_named("Never let these write the same account, they overwrite each other's changes: {}.", wrong),
        *(
            f"{part.name} protects only against writers that use it too: use it for all writers of an account, or none."
            for part in _loners(wrong)
        ),
        *_named(
            "These were correct in this run, but nothing guarantees it: {}.", [row for row in correct if not row.safe]
        ),
        *_named("These may write the same account: {}.", [row for row in correct if row.safe]),
    )


def _named(sentence: str, rows: Sequence[LoadRow]) -> Iterable[str]:
    if rows:
        yield sentence.format(listed(row.strategy for row in rows))


def _loners(rows: Sequence[LoadRow]) -> Iterable[Strategy]:
    """Return the strategies in these mixtures that are correct only among themselves."""
    parts = dict.fromkeys(part for row in rows for part in strategies_of(row.strategy))
    return (part for part in parts if part.needs_all_writers)
