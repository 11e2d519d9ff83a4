"""Which strategy to use: sentences derived from the measured rows, each with the figures that it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django_lockstep.lab.simulator.report import LoadRow
from django_lockstep.lab.simulator.stories import StoryRow
from django_lockstep.lab.simulator.wording import loss
from django_lockstep.lab.wording import listed

__all__ = ["advice_on_load", "advice_on_story", "best_of", "figures"]

_NEAR = 0.9
"""From this share of the fastest rate on, another strategy counts as equally fast: runs differ by as much."""


def advice_on_load(rows: Sequence[LoadRow], counterparts: Sequence[LoadRow] = ()) -> tuple[str, ...]:
    """Return which of the rows' strategies to use for this load, in a few sentences; none if nothing was measured.

    Of ``counterparts``, which another engine ran, only broken promises are told.
    """
    return tuple(_advice_on_load(rows, counterparts)) if rows else ()


def _advice_on_load(rows: Sequence[LoadRow], counterparts: Sequence[LoadRow]) -> Iterator[str]:
    for row in (*rows, *counterparts):
        if row.breaks_promise and row.status != "untested":
            engine = f", with the {row.engine} engine," if row in counterparts else ""
            yield f"{row.strategy}{engine} claims to be safe, but {loss(row.verdict)}: do not use it."
    right = [row for row in rows if row.safe and row.status == "correct"]
    if right:
        yield from _choice(right)
    elif any(row.safe for row in rows):
        yield "No strategy that claims to be safe proved correct in this run, so there is none to recommend."
    else:
        yield "Use none of these: all of them are unprotected. Measure one that claims to be safe, too."
    if losers := [row for row in rows if not row.safe and row.status not in {"correct", "untested"}]:
        wrong = listed(f"{_rate(row)} {loss(row.verdict, brief=True)}" for row in losers)
        yield f"{wrong}: no speed makes up for that."
    if unproven := [row.strategy for row in rows if not row.safe and row.status == "correct"]:
        yield f"{listed(unproven)} came out right this time, but nothing guarantees it: more load would show."


def _choice(right: Sequence[LoadRow]) -> Iterator[str]:
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
    yield f"What {chosen.strategy} relies on: {chosen.guarantee}"


def advice_on_story(rows: Sequence[StoryRow]) -> tuple[str, ...]:
    """Return what the story showed; nothing if it was not run."""
    return tuple(_advice_on_story([row for row in rows if row.runs]))


def _advice_on_story(rows: Sequence[StoryRow]) -> Iterator[str]:
    for row in rows:
        if row.breaks_promise:
            yield f"{row.strategy} claims to be safe, but ended wrong: do not use it."
    correct = [row for row in rows if row.status == "correct"]
    if names := [row.strategy for row in correct if row.safe]:
        yield f"{listed(names)} kept the promise in every run: use one of these."
    if broken := [f"{row.strategy} ({row.broken:,} of {row.runs:,} runs)" for row in rows if row.broken]:
        yield f"Broken by {listed(broken)}."
    for row in correct:
        if not row.safe:
            yield f"{row.strategy} came out right every time, but guarantees nothing: the next run may differ."


def best_of(right: Sequence[LoadRow]) -> list[LoadRow]:
    """Return the rows that are as fast as the fastest one, the one with the shortest p99 first."""
    fastest = max((row.operations_per_second for row in right), default=0.0)
    # Rates this near differ from run to run, so that the slow answers decide between them.
    return sorted((row for row in right if row.operations_per_second >= _NEAR * fastest), key=_p99)


def figures(row: LoadRow) -> str:
    """Return the rate and p99 of a row as text."""
    return f"{row.operations_per_second:,.0f}/s, p99 {_p99(row):,.1f} ms"


def _p99(row: LoadRow) -> float:
    return row.latency_ms.p99 or 0.0


def _rate(row: LoadRow) -> str:
    return f"{row.strategy} ({row.operations_per_second:,.0f}/s)"
