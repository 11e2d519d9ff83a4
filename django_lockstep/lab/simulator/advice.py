"""Which strategy to use: sentences derived from the measured rows, each with the figures that it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from django_lockstep.lab.simulator.load_plan import Sweep
from django_lockstep.lab.simulator.report import LoadRow
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined, listed

_NEAR = 0.9
"""From this share of the fastest rate on, another strategy counts as equally fast: runs differ by as much."""
_DROP = 0.75
"""A rate at the largest size below this share of the best rate is mentioned."""


def advice_on_load(rows: Sequence[LoadRow]) -> tuple[str, ...]:
    """Return which of the rows' strategies to use for this load, in a few sentences; none if nothing was measured."""
    broken = (
        _("{strategy} claims to be safe, but {loss}: do not use it.", strategy=row.strategy, loss=row.verdict.loss)
        for row in rows
        if row.safe and row.wrong
    )
    return (*broken, *_choice(rows), *_unprotected(rows))


def advice_on_sweep(sweep: Sweep, rows: Sequence[LoadRow]) -> tuple[str, ...]:
    """Return which strategy to use at which size, where its rate peaks, and which strategies were wrong."""
    sizes = {size: list(group) for size, group in groupby(rows, key=lambda row: row.size or 0)}
    chosen = {size: best[0] for size, group in sizes.items() if (best := _best_of(group))}
    return (*_choices(sweep, chosen), *_peaks(sweep, rows, chosen), *_wrong(sweep, rows))


def _choice(rows: Sequence[LoadRow]) -> Iterator[str]:
    if best := _best_of(rows):
        right = sum(row.safe and row.status == "correct" for row in rows)
        if right == 1:
            why = _("the only one measured that is right")
        elif best[1:]:
            why = _("the shortest p99 among the fastest of the {number} that are right", number=right)
        else:
            why = _("the fastest of the {number} that are right", number=right)
        yield _(
            "For this load use {strategy}: {figures}, {why}.",
            strategy=best[0].strategy,
            figures=figures(best[0]),
            why=why,
        )
    elif any(row.safe for row in rows):
        yield _("No strategy that claims to be safe proved correct in this run, so there is none to recommend.")
    elif rows:
        yield _("Use none of these: all of them are unprotected. Measure one that claims to be safe, too.")


def _unprotected(rows: Sequence[LoadRow]) -> Iterator[str]:
    """Say which of those that claim nothing were wrong, and which had luck."""
    if wrong := [joined([row.strategy, row.verdict.loss], " ") for row in rows if row.wrong and not row.safe]:
        yield joined([listed(wrong), ""], ".")
    if lucky := [row.strategy for row in rows if row.status == "correct" and not row.safe]:
        yield _(
            "{strategies} came out right this time, but nothing guarantees it: more load would show.",
            strategies=listed(lucky),
        )


def _choices(sweep: Sweep, chosen: dict[int, LoadRow]) -> Iterator[str]:
    # Neighbouring sizes with the same choice become one sentence.
    for _strategy, group in groupby(chosen.items(), key=lambda item: item[1].strategy):
        *smaller, (last, row) = group
        if smaller:
            yield f"With {smaller[0][0]:,} to {sweep.describe(last)} use {row.strategy}: {figures(row)} with {last:,}."
        else:
            yield f"With {sweep.describe(last)} use {row.strategy}: {figures(row)}."


def _peaks(sweep: Sweep, rows: Sequence[LoadRow], chosen: dict[int, LoadRow]) -> Iterator[str]:
    """Say of the chosen strategies at which size they were fastest, if larger sizes made them slower."""
    for name in dict.fromkeys(row.strategy for row in chosen.values()):
        line = [row for row in rows if row.strategy == name]
        best, last = max(line, key=lambda row: row.tally.rate), line[-1]
        if last.tally.rate < _DROP * best.tally.rate:
            share = last.tally.rate / best.tally.rate
            size = sweep.describe(best.size or 0)
            yield f"{name} is fastest with {size}, and has {share:.0%} of that rate with {last.size:,}."


def _wrong(sweep: Sweep, rows: Sequence[LoadRow]) -> Iterator[str]:
    for name in dict.fromkeys(row.strategy for row in rows if row.wrong):
        *sizes, last = [row.size or 0 for row in rows if row.wrong and row.strategy == name]
        where = listed([*(f"{size:,}" for size in sizes), sweep.describe(last)])
        yield f"{name} was wrong with {where}."


def _best_of(rows: Iterable[LoadRow]) -> list[LoadRow]:
    """Return the safe and correct rows that are as fast as the fastest one, the one with the shortest p99 first."""
    right = [row for row in rows if row.safe and row.status == "correct"]
    fastest = max((row.tally.rate for row in right), default=0.0)
    # Rates this near differ from run to run, so that the slow answers decide between them.
    near = [row for row in right if row.tally.rate >= _NEAR * fastest]
    return sorted(near, key=lambda row: row.latency_ms["p99"] or 0.0)


def figures(row: LoadRow) -> str:
    """Return the rate and p99 of a row as text."""
    return f"{row.tally.rate:,.0f}/s, p99 {row.latency_ms['p99'] or 0.0:,.1f} ms"
