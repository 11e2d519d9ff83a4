"""Reports for people: tables that fit into 80 columns, and the answer below them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from accounts.lab.simulator.errors import SimulationError
from accounts.lab.simulator.report import LoadReport, Row
from accounts.lab.simulator.rounds import PASSED, REFUSED, Ending, StoryReport, StoryRow
from accounts.lab.simulator.wording import counted, listed, loss

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = ["as_table", "require_rich"]

_ENDLESS = 1000


def require_rich() -> None:
    """Raise `SimulationError` where rich, which draws the tables, is not installed."""
    try:
        import rich  # noqa: F401
    except ImportError:
        raise SimulationError(
            "Tables need rich, the extra 'lab' of this package: install it, or use --format json or csv."
        ) from None


def as_table(report: LoadReport | StoryReport, *, width: int = 80, colour: bool = False) -> str:
    """Return the report as text of this width; ``colour`` puts terminal codes into it.

    Raises `SimulationError` where rich is not installed.
    """
    require_rich()
    from rich.console import Console

    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=colour, highlight=False, markup=False, emoji=False)
    for block in _load_blocks(report) if isinstance(report, LoadReport) else _story_blocks(report):
        _print(console, block)
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip().split("\n"))


# A load.


def _load_blocks(report: LoadReport) -> Iterable[RenderableType]:
    plan, load = report.plan, report.load
    yield _bold(
        f"{counted(plan.workers, 'worker')} on {counted(load['accounts'], 'account')}, "
        f"{plan.extent} a strategy, deposit:withdraw:transfer {load['mix']}"
    )
    think = f", think time {plan.think_time:g} s" if plan.think_time else ""
    yield (
        f"{_where(report)}. Each account opens with {load['opening_balance']} and may go {load['overdraft_limit']} "
        f"below zero; amounts from {' to '.join(load['amounts'])}; seed {load['seed']}{think}."
    )
    if report.rows:
        yield ""
        yield _figures(report.rows, _RESULTS)
        yield ""
        yield _figures(report.rows, _COSTS)
        yield ""
        yield "p50 to max: latency in ms. Fairness between workers: 1.00 is best."
        yield from _remarks(report.rows)
    yield from _end(report, question="Which should I use?")


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


_RESULTS: Mapping[str, Callable[[Row], str]] = {
    "Lost": lambda row: f"{row.verdict.lost_updates:,}",
    "Money off": lambda row: f"{row.verdict.money_lost:,.2f}",
    "ops/s": lambda row: f"{row.operations_per_second:,.0f}",
    "p50": lambda row: _milliseconds(row.latency_ms.p50),
    "p95": lambda row: _milliseconds(row.latency_ms.p95),
    "p99": lambda row: _milliseconds(row.latency_ms.p99),
    "max": lambda row: _milliseconds(row.latency_ms.max),
}
_COSTS: Mapping[str, Callable[[Row], str]] = {
    "Retries/op": lambda row: f"{row.retries_per_operation:.2f}",
    "Conflicts": lambda row: f"{row.conflicts:,}",
    "Deadlocks": lambda row: f"{row.deadlocks:,}",
    "Refused": lambda row: f"{row.refused:,}",
    "Errors": lambda row: f"{row.failed:,}",
    "Fairness": lambda row: "-" if row.fairness is None else f"{row.fairness:.2f}",
}


def _figures(rows: Sequence[Row], columns: Mapping[str, Callable[[Row], str]]) -> Table:
    """Return a table of these figures; the first one has the verdict too."""
    judged = columns is _RESULTS
    table = _table("Strategy", *(["Verdict"] if judged else []))
    for title in columns:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        verdict = [_verdict(row.status)] if judged else []
        table.add_row(row.strategy, *verdict, *(cell(row) for cell in columns.values()))
    return table


def _remarks(rows: Sequence[Row]) -> Iterable[str]:
    """Yield what needs more words than a column has."""
    remarks = [remark for row in rows for remark in _remarks_on(row)]
    if remarks:
        yield ""
    yield from remarks


def _remarks_on(row: Row) -> Iterable[str]:
    if row.status not in {"correct", "untested"}:
        yield f"{row.strategy} {loss(row.verdict)}."
    if row.status == "untested":
        yield f"{row.strategy}: no operation succeeded, so that nothing was put to the test."
    for kind, count in row.errors.items():
        yield f"{row.strategy}: {count:,} x {kind}: {row.error_examples.get(kind, '')}"
    yield from (f"{row.strategy}: {casualty}" for casualty in row.casualties)
    if row.verdict.from_ledger_alone:
        yield f"{row.strategy}: what all workers were told is not known, so the verdict is from the ledger alone."
    if row.cut_short:
        yield f"{row.strategy}: interrupted after {row.seconds:.1f} s."


# A story.


def _story_blocks(report: StoryReport) -> Iterable[RenderableType]:
    yield _bold(report.text)
    yield report.promise
    yield f"{_where(report)}; {counted(report.rounds, 'round')} a strategy, two processes released together in each"
    if report.rows:
        yield ""
        yield _endings(report.rows)
    yield from _story_remarks(report.rows)
    yield from _end(report, question="What it shows:")


def _endings(rows: Sequence[StoryRow]) -> Table:
    table = _table("Strategy", "Verdict", "Ended wrong", "Rounds x balance at the end, who passed")
    for row in rows:
        wrong = f"{row.broken:,} of {row.rounds:,}"
        table.add_row(row.strategy, _verdict(row.status), wrong, "\n".join(map(_ending, row.endings)))
    return table


def _story_remarks(rows: Sequence[StoryRow]) -> Iterable[str]:
    for row in rows:
        yield from (f"{row.strategy}: {casualty}" for casualty in row.casualties)
        if row.cut_short:
            yield f"{row.strategy}: interrupted after {counted(row.rounds, 'round')}."


def _ending(ending: Ending) -> str:
    """Return how often, with which balance, and who passed."""
    passed = [actor for actor, outcome in ending.outcomes.items() if outcome == PASSED]
    errors = [f"{actor}: {outcome}" for actor, outcome in ending.outcomes.items() if outcome not in {PASSED, REFUSED}]
    who = "both" if len(passed) == len(ending.outcomes) else f"only {listed(passed)}" if passed else "none"
    return f"{ending.rounds:>3} x {ending.observed:>7}, {'; '.join([who, *errors])}"


# What both share.


def _where(report: LoadReport | StoryReport) -> str:
    facts = report.environment
    isolation = "" if facts["isolation"] == "read committed" else f" ({facts['isolation']})"
    return f"{facts['database']}{isolation}, Django {facts['django']}, Python {facts['python']}, {facts['cpus']} CPUs"


def _end(report: LoadReport | StoryReport, *, question: str) -> Iterable[RenderableType]:
    """Yield the notes and the answer."""
    if report.interrupted:
        yield ""
        done = f"{len(report.rows)} of {len(report.planned)} strategies were measured"
        yield f"Interrupted by {report.interrupted}: {done}."
    yield from ([""] if report.notes else [])
    yield from report.notes
    if report.advice:
        yield ""
        yield _bold(question)
        yield _listing(report.advice)


def _listing(sentences: Sequence[str]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    for sentence in sentences:
        grid.add_row("-", sentence)
    return grid


def _table(*titles: str) -> Table:
    from rich.box import Box
    from rich.table import Table

    # A line of dashes below the headings, in characters that every terminal and every file has.
    lines = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
    table = Table(box=lines, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title, no_wrap=True)
    return table


def _print(console: Console, block: RenderableType) -> None:
    """Print tables in full: tighter where they would not fit, and wider than the console rather than cut off."""
    from rich.table import Table

    if not (isinstance(block, Table) and block.show_header):
        console.print(block)
        return
    unbounded = console.options.update(max_width=_ENDLESS)
    if console.measure(block, options=unbounded).maximum > console.width:
        block.padding = 0
    width = console.width
    console.width = max(width, console.measure(block, options=unbounded).maximum)
    console.print(block)
    console.width = width


def _verdict(status: str) -> Text:
    from rich.text import Text

    styles = {"correct": "green", "untested": "yellow"}
    calm = status in styles
    return Text(status if calm else status.upper(), style=styles.get(status, "bold red"))


def _bold(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="bold")
