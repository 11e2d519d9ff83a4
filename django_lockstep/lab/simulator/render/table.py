"""Reports as tables that fit into 80 columns, with the advice below them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from django_lockstep.lab import tables
from django_lockstep.lab.simulator.report import LoadReport, LoadRow
from django_lockstep.lab.tables import bold, plain_table
from django_lockstep.lab.wording import counted

_COLOURS: Mapping[str, str] = {"correct": "green", "untested": "yellow"}
"""The colours of verdicts that are not failures."""


def as_table(report: LoadReport, *, width: int = 80, colour: bool = False) -> str:
    """Return the report as text of this width; ``colour`` puts terminal codes into it."""
    return tables.render(_blocks(report), width=width, colour=colour)


def _blocks(report: LoadReport) -> Iterable[RenderableType]:
    yield from _load_blocks(report)
    if report.interrupted:
        yield ""
        sweep = report.sweep
        planned = len(report.planned) * len(sweep.values) if sweep else len(report.planned)
        rows = f"{len(report.rows)} of {planned} {'rows' if sweep else 'strategies'}"
        yield f"Interrupted by {report.interrupted}: {rows} were measured."
    yield from ["", *report.notes] if report.notes else []
    if report.advice:
        yield ""
        yield bold("Which should I use?")
        advice = Table.grid(padding=(0, 1))
        for sentence in report.advice:
            advice.add_row("-", sentence)
        yield advice


# A load, or a sweep: how each figure grows, one table a figure.


def _load_blocks(report: LoadReport) -> Iterable[RenderableType]:
    yield bold(f"{_scope(report)}, {report.plan.extent} per strategy, deposit:withdraw:transfer {report.load['mix']}")
    yield _circumstances(report)
    if report.rows and report.sweep is None:
        yield ""
        yield _figures(report.rows, {**_RESULTS, **_LATENCIES})
        yield ""
        yield _figures(report.rows, _COSTS)
        yield ""
        yield "p50 to max: latency in ms. Fairness between workers: 1.00 is best."
    elif report.rows:
        for title, cell in _GROWING.items():
            yield ""
            yield bold(title)
            yield _growth(report, cell)
    remarks = [remark for row in report.rows for remark in _remarks_on(row, report)]
    yield from ["", *remarks] if remarks else []


def _scope(report: LoadReport) -> str:
    """Return how many workers change how many accounts, with the numbers that a sweep varies."""
    counts = {
        "workers": counted(report.plan.workers, "worker"),
        "accounts": counted(report.load["accounts"], "account"),
    }
    if report.sweep:
        *values, last = report.sweep.values
        counts[report.sweep.axis] = f"{', '.join(f'{value:,}' for value in values)} and {report.sweep.describe(last)}"
    return f"{counts['workers']} on {counts['accounts']}"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


_RESULTS: Mapping[str, Callable[[LoadRow], str | Text]] = {
    "Verdict": lambda row: Text(
        row.status.upper() if row.wrong else row.status, style=_COLOURS.get(row.status, "bold red")
    ),
    "Lost": lambda row: f"{row.verdict.lost_updates:,}",
    "Balance error": lambda row: f"{row.verdict.money_lost:,.2f}",
    "ops/s": lambda row: f"{row.tally.rate:,.0f}",
}
_LATENCIES: Mapping[str, Callable[[LoadRow], str | Text]] = {
    "p50": lambda row: _milliseconds(row.latency_ms["p50"]),
    "p95": lambda row: _milliseconds(row.latency_ms["p95"]),
    "p99": lambda row: _milliseconds(row.latency_ms["p99"]),
}
_COSTS: Mapping[str, Callable[[LoadRow], str | Text]] = {
    "max": lambda row: _milliseconds(row.latency_ms["max"]),
    "Retries/op": lambda row: f"{row.tally.retries_per_operation:.2f}",
    "Conflicts": lambda row: f"{row.tally.conflicts:,}",
    "Deadlocks": lambda row: f"{row.tally.deadlocks:,}",
    "Refused": lambda row: f"{row.tally.refused:,}",
    "Errors": lambda row: f"{row.tally.failed:,}",
    "Fairness": lambda row: "-" if row.fairness is None else f"{row.fairness:.2f}",
}


def _figures(rows: Sequence[LoadRow], columns: Mapping[str, Callable[[LoadRow], str | Text]]) -> Table:
    table = plain_table("Strategy")
    for title in columns:
        table.add_column(title, justify="left" if title == "Verdict" else "right", no_wrap=True)
    for row in rows:
        table.add_row(row.strategy, *(cell(row) for cell in columns.values()))
    return table


def _remarks_on(row: LoadRow, report: LoadReport) -> Iterable[str]:
    """Yield what does not fit into a column."""
    name = f"{report.sweep.describe(row.size)}: {row.strategy}" if report.sweep and row.size else row.strategy
    # Without a sweep the advice says so.
    if report.sweep and row.wrong and row.safe:
        yield f"{name} {row.verdict.loss}."
    if row.status == "untested":
        yield f"{name}: no operation succeeded, so that nothing was tested."
    for kind, count in row.tally.errors.items():
        yield f"{name}: {count:,} x {kind}: {row.tally.examples.get(kind, '')}"
    yield from (f"{name}: {failure}" for failure in row.worker_failures)
    if row.verdict.without_acknowledgements:
        yield f"{name}: some acknowledged changes are not known, so the verdict is from the entries alone."
    if row.cut_short:
        yield f"{name}: interrupted after {row.tally.seconds:.1f} s."


_GROWING: Mapping[str, Callable[[LoadRow], str | Text]] = {
    # A rate of wrong results is marked where it stands: rates are what readers compare.
    "Operations per second; x where the strategy was wrong": lambda row: (
        f"{'x ' if row.wrong else ''}{row.tally.rate:,.0f}"
    ),
    "p50 in ms": _LATENCIES["p50"],
    "p95 in ms": _LATENCIES["p95"],
    "p99 in ms": _LATENCIES["p99"],
    "Retries per operation": _COSTS["Retries/op"],
    "Fairness between workers: 1.00 is best": _COSTS["Fairness"],
}


def _growth(report: LoadReport, cell: Callable[[LoadRow], str | Text]) -> Table:
    table = plain_table(f"{report.sweep.axis.capitalize()}:" if report.sweep else "")
    for size in report.sizes:
        table.add_column(f"{size:,}", justify="right", no_wrap=True)
    for name in report.planned:
        line = report.line(name)
        table.add_row(name, *(cell(line[size]) if size in line else "" for size in report.sizes))
    return table


def _circumstances(report: LoadReport) -> str:
    load, think = report.load, f", think time {report.plan.think_time:g} s" if report.plan.think_time else ""
    isolation = report.environment.get("isolation", "read committed")
    server = report.environment["database"] + (f" ({isolation})" if isolation != "read committed" else "")
    return (
        f"{', '.join([server, *report.versions])}. Each account opens with {load['opening_balance']} and may go "
        f"{load['overdraft_limit']} below zero; "
        f"amounts from {' to '.join(load['amounts'])}; seed {load['seed']}{think}."
    )
