"""Which strategy to use: sentences derived from the measured rows, each with the figures that it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from django_lockstep.lab.simulator.report import LoadRow, speedup
from django_lockstep.lab.simulator.stories import StoryRow
from django_lockstep.lab.simulator.wording import loss
from django_lockstep.lab.wording import listed

__all__ = ["advice_on_load", "advice_on_story", "best_of", "figures"]

_NEAR = 0.9
"""From this share of the fastest rate on, another strategy counts as equally fast: runs differ by as much."""
_MANY_RETRIES = 0.5
"""Retries per operation from which on they are mentioned."""
_UNFAIR = 0.8
"""Jain's index below which some workers clearly got less than others."""
_NAMED = 2
"""How many strategies are named for each kind of cost."""
_LONG_TAIL = 2
"""How many times the shortest p99 the chosen one's must be for a steadier one to be named."""
_SLOW_TAIL = 5
"""How many times the chosen one's p99 another one's must be to be mentioned."""


def advice_on_load(rows: Sequence[LoadRow], counterparts: Sequence[LoadRow] = ()) -> tuple[str, ...]:
    """Return which strategy to use for this load, in a few sentences; none where nothing was measured.

    They are about ``rows``; those about ``counterparts`` name the other engine.
    """
    if not rows:
        return ()
    right = [row for row in rows if row.safe and row.status == "correct"]
    chosen = best_of(right)[:1]
    return (
        *_broken_promises(rows),
        *_choice(right, rows),
        *_steadier(right, chosen),
        *_guarantee(chosen),
        *_losses(rows, chosen),
        *_unproven(rows),
        *_prices(right, chosen),
        *_by_another_engine(rows, counterparts),
    )


def advice_on_story(rows: Sequence[StoryRow]) -> tuple[str, ...]:
    """Return what the story showed; nothing where it was not run."""
    finished = [row for row in rows if row.runs]
    kept = [row for row in finished if row.status == "correct"]
    return (
        *(
            f"{row.strategy} claims to be safe, but ended wrong: do not use it."
            for row in finished
            if row.breaks_promise
        ),
        *_kept(kept),
        *_went_wrong([row for row in finished if row.broken]),
        *(
            f"{row.strategy} came out right every time, but guarantees nothing: the next run may differ."
            for row in kept
            if not row.safe
        ),
    )


def best_of(right: Sequence[LoadRow]) -> list[LoadRow]:
    """Return the rows that are as fast as the fastest one, the one with the shortest p99 first."""
    fastest = max((row.operations_per_second for row in right), default=0.0)
    # Rates this near differ from run to run, so that the slow answers decide between them.
    return sorted((row for row in right if row.operations_per_second >= _NEAR * fastest), key=_p99)


def _choice(right: Sequence[LoadRow], rows: Sequence[LoadRow]) -> Iterable[str]:
    if not right:
        if not any(row.safe for row in rows):
            yield "Use none of these: all of them are unprotected. Measure one that claims to be safe, too."
        else:
            yield "No strategy that claims to be safe proved correct in this run, so there is none to recommend."
        return
    chosen, *near = best_of(right)
    lead = f"For this load use {chosen.strategy}: {figures(chosen)}"
    if len(right) == 1:
        yield f"{lead}, the only one measured that is right."
    elif near:
        yield f"{lead}, the shortest p99 among the fastest of the {len(right)} that are right."
        others = listed(f"{row.strategy} ({figures(row)})" for row in near)
        yield f"{others} {'is' if len(near) == 1 else 'are'} as fast within a run's variation."
    else:
        second = max((row for row in right if row is not chosen), key=lambda row: row.operations_per_second)
        yield f"{lead}, the fastest of the {len(right)} that are right."
        share = second.operations_per_second / chosen.operations_per_second
        yield f"{_rate(second)} comes next, with {share:.0%} of its rate."


def _steadier(right: Sequence[LoadRow], chosen: Sequence[LoadRow]) -> Iterable[str]:
    """Name the strategy with the shortest p99 where the chosen one has a much longer one."""
    for row in chosen:
        steady = min(right, key=_p99)
        if _p99(row) >= _LONG_TAIL * _p99(steady) > 0:
            share = steady.operations_per_second / row.operations_per_second
            yield (
                f"Where slow answers hurt more than a lower rate, use {steady.strategy}: p99 {_p99(steady):,.1f} ms "
                f"({row.strategy}: {_p99(row):,.1f} ms), at {share:.0%} of the rate."
            )


def _guarantee(chosen: Sequence[LoadRow]) -> Iterable[str]:
    for row in chosen:
        yield f"What {row.strategy} relies on: {row.guarantee}"


def _broken_promises(rows: Sequence[LoadRow]) -> Iterable[str]:
    for row in rows:
        if row.breaks_promise and row.status != "untested":
            yield f"{row.strategy} claims to be safe, but {loss(row.verdict)}: do not use it."


def _losses(rows: Sequence[LoadRow], chosen: Sequence[LoadRow]) -> Iterable[str]:
    losers = [row for row in rows if not row.safe and row.status not in {"correct", "untested"}]
    if not losers:
        return
    slower = bool(chosen) and all(row.operations_per_second < chosen[0].operations_per_second for row in losers)
    wrong = listed(f"{_rate(row)} {loss(row.verdict, brief=True)}" for row in losers)
    yield f"{wrong}: {'wrong, and not even faster' if slower else 'no speed makes up for that'}."


def _unproven(rows: Sequence[LoadRow]) -> Iterable[str]:
    unproven = [row.strategy for row in rows if not row.safe and row.status == "correct"]
    if unproven:
        yield f"{listed(unproven)} came out right this time, but nothing guarantees it: more load would show."


def _prices(right: Sequence[LoadRow], chosen: Sequence[LoadRow]) -> Iterable[str]:
    """Say what the correct strategies cost: repeated work, workers that got less than others, slow answers."""
    bound = max((_SLOW_TAIL * _p99(row) for row in chosen), default=math.inf)
    busy = sorted((row for row in right if _retries(row) >= _MANY_RETRIES), key=_retries, reverse=True)
    unfair = sorted((row for row in right if _fairness(row) < _UNFAIR), key=_fairness)
    slow = sorted((row for row in right if _p99(row) >= bound), key=_p99, reverse=True)
    prices = [
        *_priced("repeated work", [f"{row.strategy} {_retries(row):.1f} retries/op" for row in busy]),
        *_priced("unequal shares", [f"{row.strategy} fairness {_fairness(row):.2f}" for row in unfair]),
        *_priced("slow answers", [f"{row.strategy} p99 {_p99(row):,.0f} ms" for row in slow]),
    ]
    if prices:
        yield f"What it costs: {'; '.join(prices)}."


def _by_another_engine(rows: Sequence[LoadRow], counterparts: Sequence[LoadRow]) -> Iterable[str]:
    """Say which counterpart is the fastest correct one, and which ones were wrong."""
    written = {row.strategy: row for row in rows}
    right = [row for row in counterparts if row.safe and row.status == "correct"]
    for best in best_of(right)[:1]:
        times = speedup(written[best.strategy], best) if best.strategy in written else None
        more = f", {times:.1f} times its rate as written" if times else ""
        yield (
            f"All of this is about the strategies as they are written. With the {best.engine} engine, {best.strategy} "
            f"is the fastest correct one: {figures(best)}{more}."
        )
    for row in counterparts:
        if row.breaks_promise and row.status != "untested":
            yield f"{row.strategy}, with the {row.engine} engine, claims to be safe, but {loss(row.verdict)}."


def _priced(price: str, rows: Sequence[str]) -> Iterable[str]:
    if rows:
        yield f"{price} with {listed(rows[:_NAMED])}"


def _retries(row: LoadRow) -> float:
    return row.retries_per_operation


def _fairness(row: LoadRow) -> float:
    return 1.0 if row.fairness is None else row.fairness


def _p99(row: LoadRow) -> float:
    return row.latency_ms.p99 or 0.0


def figures(row: LoadRow) -> str:
    """Return the rate and p99 of a row as text."""
    return f"{row.operations_per_second:,.0f}/s, p99 {_p99(row):,.1f} ms"


def _rate(row: LoadRow) -> str:
    return f"{row.strategy} ({row.operations_per_second:,.0f}/s)"


def _kept(kept: Sequence[StoryRow]) -> Iterable[str]:
    names = [row.strategy for row in kept if row.safe]
    if names:
        yield f"{listed(names)} kept the promise in every run: use one of these."


def _went_wrong(rows: Sequence[StoryRow]) -> Iterable[str]:
    if rows:
        yield f"Broken by {listed(f'{row.strategy} ({row.broken:,} of {row.runs:,} runs)' for row in rows)}."
