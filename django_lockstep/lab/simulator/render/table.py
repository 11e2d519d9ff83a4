"""Reports as tables that fit into 80 columns, with the advice below them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from django_lockstep.lab import tables
from django_lockstep.lab.simulator.render.data import Report
from django_lockstep.lab.simulator.report import LoadReport, LoadRow, speedup
from django_lockstep.lab.simulator.stories import PASSED, REFUSED, Ending, StoryReport, StoryRow
from django_lockstep.lab.simulator.sweep import SweepReport
from django_lockstep.lab.simulator.wording import loss
from django_lockstep.lab.tables import bold, plain_table
from django_lockstep.lab.wording import counted, listed

__all__ = ["as_table"]

_EXPECTED: Mapping[str, str] = {"correct": "green", "untested": "yellow"}
"""The colours of verdicts that are not failures."""


def as_table(report: Report, *, width: int = 80, colour: bool = False) -> str:
    """Return the report as text of this width; ``colour`` puts terminal codes into it."""
    return tables.render(_blocks(report), width=width, colour=colour)


def _blocks(report: Report) -> Iterable[RenderableType]:
    if isinstance(report, LoadReport):
        return _load_blocks(report)
    return _sweep_blocks(report) if isinstance(report, SweepReport) else _story_blocks(report)


# A load.


def _load_blocks(report: LoadReport) -> Iterable[RenderableType]:
    workers, accounts = counted(report.plan.workers, "worker"), counted(report.load["accounts"], "account")
    yield bold(f"{workers} on {accounts}, {_work(report)}")
    yield _circumstances(report)
    if report.rows:
        yield ""
        yield _figures(report.rows, _results(report))
        yield ""
        yield _figures(report.rows, _COSTS)
        yield ""
        yield "p50 to max: latency in ms. Fairness between workers: 1.00 is best."
        yield from _explained(report)
        yield from _remarks((*report.rows, *report.counterparts))
    yield from _end(report, question="Which should I use?")


def _explained(report: LoadReport) -> Iterable[str]:
    for engine in dict.fromkeys(row.engine for row in report.counterparts):
        yield (
            f"{engine}: operations per second of the same strategy with the {engine} engine, and how many times as "
            "many; every other figure is of the strategies as they are written."
        )


def _results(report: LoadReport) -> Mapping[str, Callable[[LoadRow], str]]:
    """Return the columns of the first table, with the counterparts' behind the operations a second."""
    columns: dict[str, Callable[[LoadRow], str]] = {}
    for title, cell in _RESULTS.items():
        columns[title] = cell
        if title == _RATE and report.counterparts:
            columns[report.counterparts[0].engine] = lambda row: _counterpart(row, report)
    return columns


def _counterpart(row: LoadRow, report: LoadReport) -> str:
    other = report.counterpart(row)
    if other is None:
        return ""
    times = speedup(row, other)
    # A rate of wrong results is marked where it stands: rates are what readers compare.
    wrong = "" if other.status in _EXPECTED else "x "
    return f"{wrong}{other.operations_per_second:,.0f}" + (f" {times:.1f}x" if times else "")


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


_RATE = "ops/s"
_RESULTS: Mapping[str, Callable[[LoadRow], str]] = {
    "Lost": lambda row: f"{row.verdict.lost_updates:,}",
    "Money off": lambda row: f"{row.verdict.money_lost:,.2f}",
    _RATE: lambda row: f"{row.operations_per_second:,.0f}",
    "p50": lambda row: _milliseconds(row.latency_ms.p50),
    "p95": lambda row: _milliseconds(row.latency_ms.p95),
    "p99": lambda row: _milliseconds(row.latency_ms.p99),
}
_COSTS: Mapping[str, Callable[[LoadRow], str]] = {
    "max": lambda row: _milliseconds(row.latency_ms.max),
    "Retries/op": lambda row: f"{row.retries_per_operation:.2f}",
    "Conflicts": lambda row: f"{row.conflicts:,}",
    "Deadlocks": lambda row: f"{row.deadlocks:,}",
    "Refused": lambda row: f"{row.refused:,}",
    "Errors": lambda row: f"{row.failed:,}",
    "Fairness": lambda row: "-" if row.fairness is None else f"{row.fairness:.2f}",
}


def _figures(rows: Sequence[LoadRow], columns: Mapping[str, Callable[[LoadRow], str]]) -> Table:
    """Return a table of these figures; the first one has the verdict too."""
    judged = _RATE in columns
    table = plain_table("Strategy", *(["Verdict"] if judged else []))
    for title in columns:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        verdict = [_verdict(row.status)] if judged else []
        table.add_row(row.strategy, *verdict, *(cell(row) for cell in columns.values()))
    return table


def _remarks(rows: Sequence[LoadRow]) -> Iterable[str]:
    """Yield what does not fit into a column."""
    remarks = [remark for row in rows for remark in _remarks_on(row)]
    if remarks:
        yield ""
    yield from remarks


def _remarks_on(row: LoadRow, *, losses: bool = True) -> Iterable[str]:
    if losses and row.status not in _EXPECTED:
        yield f"{row.strategy} {loss(row.verdict)}."
    if row.status == "untested":
        yield f"{row.strategy}: no operation succeeded, so that nothing was tested."
    for kind, count in row.errors.items():
        yield f"{row.strategy}: {count:,} x {kind}: {row.error_examples.get(kind, '')}"
    yield from (f"{row.strategy}: {failure}" for failure in row.worker_failures)
    if row.verdict.without_acknowledgements:
        yield f"{row.strategy}: some acknowledged changes are not known, so the verdict is from the entries alone."
    if row.cut_short:
        yield f"{row.strategy}: interrupted after {row.seconds:.1f} s."


# A sweep: how each figure grows, one table a figure.


def _sweep_blocks(report: SweepReport) -> Iterable[RenderableType]:
    sweep = report.sweep
    varied = f"{', '.join(f'{value:,}' for value in sweep.values[:-1])} and {sweep.describe(sweep.values[-1])}"
    if sweep.axis == "workers":
        scope = f"{varied} on {counted(report.load['accounts'], 'account')}"
    else:
        scope = f"{counted(report.plan.workers, 'worker')} on {varied}"
    yield bold(f"{scope}, {_work(report)}")
    yield _circumstances(report)
    for title, cell in _GROWING.items() if report.points else ():
        yield ""
        yield bold(title)
        yield _growth(report, cell)
    yield from _sweep_remarks(report)
    yield from _end(report, question="Which should I use?")


_GROWING: Mapping[str, Callable[[LoadRow], str]] = {
    "Operations per second; x where the strategy was wrong": lambda row: (
        f"{'' if row.status in _EXPECTED else 'x '}{row.operations_per_second:,.0f}"
    ),
    "p50 in ms": lambda row: _milliseconds(row.latency_ms.p50),
    "p95 in ms": lambda row: _milliseconds(row.latency_ms.p95),
    "p99 in ms": lambda row: _milliseconds(row.latency_ms.p99),
    "Retries per operation": lambda row: f"{row.retries_per_operation:.2f}",
    "Fairness between workers: 1.00 is best": lambda row: "-" if row.fairness is None else f"{row.fairness:.2f}",
}


def _growth(report: SweepReport, cell: Callable[[LoadRow], str]) -> Table:
    table = plain_table(f"{report.sweep.axis.capitalize()}:")
    for point in report.points:
        table.add_column(f"{point.value:,}", justify="right", no_wrap=True)
    for name in report.planned:
        rows = [point.row(name) for point in report.points]
        table.add_row(name, *("" if row is None else cell(row) for row in rows))
    return table


def _sweep_remarks(report: SweepReport) -> Iterable[str]:
    remarks = [
        f"{report.sweep.describe(point.value)}: {remark}"
        for point in report.points
        for row in point.rows
        for remark in _remarks_on(row, losses=row.safe)
    ]
    yield from [""] if remarks else []
    yield from remarks


# A story.


def _story_blocks(report: StoryReport) -> Iterable[RenderableType]:
    yield bold(report.text)
    yield report.promise
    yield f"{_where(report)}; {counted(report.runs, 'run')} for each strategy, two processes start together in each"
    if report.rows:
        yield ""
        yield _endings(report.rows)
    yield from _story_remarks(report.rows)
    yield from _end(report, question="What it shows:")


def _endings(rows: Sequence[StoryRow]) -> Table:
    table = plain_table("Strategy", "Verdict", "Ended wrong", "Rounds x balance at the end, which actors passed")
    for row in rows:
        wrong = f"{row.broken:,} of {row.runs:,}"
        table.add_row(row.strategy, _verdict(row.status), wrong, "\n".join(map(_ending, row.endings)))
    return table


def _story_remarks(rows: Sequence[StoryRow]) -> Iterable[str]:
    for row in rows:
        yield from (f"{row.strategy}: {failure}" for failure in row.worker_failures)
        if row.cut_short:
            yield f"{row.strategy}: interrupted after {counted(row.runs, 'run')}."


def _ending(ending: Ending) -> str:
    """Return how often the story ended so, the balance, and which actors passed."""
    passed = [actor for actor, outcome in ending.outcomes.items() if outcome == PASSED]
    errors = [f"{actor}: {outcome}" for actor, outcome in ending.outcomes.items() if outcome not in {PASSED, REFUSED}]
    passing = "both" if len(passed) == len(ending.outcomes) else f"only {listed(passed)}" if passed else "none"
    return f"{ending.runs:>3} x {ending.observed:>7}, {'; '.join([passing, *errors])}"


# What all reports share.


def _work(report: LoadReport | SweepReport) -> str:
    return f"{report.plan.extent} per strategy, deposit:withdraw:transfer {report.load['mix']}"


def _circumstances(report: LoadReport | SweepReport) -> str:
    load, think = report.load, f", think time {report.plan.think_time:g} s" if report.plan.think_time else ""
    return (
        f"{_where(report)}. Each account opens with {load['opening_balance']} and may go {load['overdraft_limit']} "
        f"below zero; amounts from {' to '.join(load['amounts'])}; seed {load['seed']}{think}."
    )


def _where(report: Report) -> str:
    facts = report.environment
    isolation = f" ({facts['isolation']})" if facts.get("isolation", "read committed") != "read committed" else ""
    return f"{facts['database']}{isolation}, Django {facts['django']}, Python {facts['python']}, {facts['cpus']} CPUs"


def _end(report: Report, *, question: str) -> Iterable[RenderableType]:
    """Yield the notes and the advice."""
    if report.interrupted:
        yield ""
        yield f"Interrupted by {report.interrupted}: {_done(report)} were measured."
    yield from ([""] if report.notes else [])
    yield from report.notes
    if report.advice:
        yield ""
        yield bold(question)
        yield _listing(report.advice)


def _done(report: Report) -> str:
    if isinstance(report, SweepReport):
        return f"{len(report.rows)} of {len(report.planned) * len(report.sweep.values)} rows"
    return f"{len(report.rows)} of {len(report.planned)} strategies"


def _listing(sentences: Sequence[str]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    for sentence in sentences:
        grid.add_row("-", sentence)
    return grid


def _verdict(status: str) -> Text:
    from rich.text import Text

    return Text(status if status in _EXPECTED else status.upper(), style=_EXPECTED.get(status, "bold red"))
