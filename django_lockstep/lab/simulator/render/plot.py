"""A sweep as two panels: operations per second, and the 99th percentile of latency, over what was varied.

Every strategy has its own marker as well as its own colour, so that lines can be told apart without colour. Colours are
those of M. Okabe and K. Ito, "Color Universal Design", 2008, which differ for all kinds of colour vision; red is for
strategies that claim nothing. The line of a strategy that was wrong is dashed, with a cross at each size where it was.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from django_lockstep.lab.simulator.advice import figures
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.load_plan import Sweep
from django_lockstep.lab.simulator.report import LoadReport, LoadRow
from django_lockstep.lab.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("svg", "png")
"""File name extensions of the formats."""

_SAFE = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#000000", "#56B4E9", "#7A5230", "#5D3A9B")
_UNSAFE = ("#B00020", "#D55E00")
"""Reds, which only strategies that claim nothing have."""
_MARKERS = "os^DvP*<>Xhp"
_INK, _GREY, _WRONG = "#222222", "#666666", "#B00020"
_GRID, _PAPER = "#DDDDDD", "#FFFFFF"
_DASHED = (0, (4, 2))
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and read aloud
    "svg.hashsalt": "sweep",  # the same figures give the same file
    "font.family": "sans-serif",
    "font.size": 10.5,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _GREY,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


_LATENCY = "p99 latency in ms, logarithmic"
_PANELS: dict[str, Callable[[LoadRow], float | None]] = {
    "Operations per second": lambda row: row.tally.rate,
    _LATENCY: lambda row: row.latency_ms["p99"],
}
"""What each of the two diagrams shows of a row."""


def require_matplotlib() -> None:
    """Raise `SimulationError` where matplotlib, which draws plots, is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SimulationError(
            "Plots need matplotlib, the extra 'plot' of django-lockstep-lab: install it, or omit --plot."
        ) from None


def as_plot(report: LoadReport, *, form: str) -> bytes:
    """Return the plot of a sweep in one of `FORMATS`. Raises `SimulationError` where matplotlib is not installed."""
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    if (sweep := report.sweep) is None:
        raise ValueError("Only a sweep has sizes to draw")
    title, settings, legend = _title(report, sweep), _settings(report), _legend(report)
    with rc_context(_STYLE):
        drawing = Figure(figsize=(13.2, 5.8), facecolor=_PAPER)
        drawing.text(0.045, 0.945, title, fontsize=15, fontweight="bold")
        drawing.text(0.045, 0.9, settings, color=_GREY)
        drawing.text(0.045, 0.028, legend, color=_GREY)
        for number, (panel, figure) in enumerate(_PANELS.items()):
            axes = drawing.add_axes((0.045 + 0.42 * number, 0.15, 0.36, 0.66))
            _prepare(axes, sweep, title=panel)
            _draw_lines(axes, figure, report)
            # From zero, so that the height of a line is in proportion to the rate.
            if panel != _LATENCY:
                axes.set_ylim(bottom=0)
        drawing.legend(*axes.get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(0.84, 0.82), frameon=False)
        file = io.BytesIO()
        # For those who cannot see it.
        metadata = {"Title": title, "Description": " ".join([f"{settings}.", *_describe_lines(report, sweep), legend])}
        drawing.savefig(file, format=form, dpi=150, metadata=metadata | ({"Date": None} if form == "svg" else {}))
    return file.getvalue()


def _draw_lines(axes: Axes, figure: Callable[[LoadRow], float | None], report: LoadReport) -> None:
    looks, wrong = _looks(report), {row.strategy for row in report.rows if row.wrong}
    for name in report.planned:
        colour, marker = looks[name]
        line = [(size, value, row) for size, row in report.line(name).items() if (value := figure(row)) is not None]
        axes.plot(
            [size for size, _, _ in line],
            [value for _, value, _ in line],
            label=f"{name} (wrong)" if name in wrong else name,
            color=colour,
            marker=marker,
            markerfacecolor=_PAPER if name in wrong else colour,
            linestyle=_DASHED if name in wrong else "solid",
            linewidth=1.8,
        )
        crosses = [(size, value) for size, value, row in line if row.wrong]
        if crosses:
            axes.plot(*zip(*crosses, strict=True), linestyle="none", marker="x", color=_WRONG, markersize=9.5, mew=1.8)


def _looks(report: LoadReport) -> dict[str, tuple[str, str]]:
    """Return the colour and the marker of each strategy."""
    unsafe = {row.strategy for row in report.rows if not row.safe}
    colours = {True: itertools.cycle(_UNSAFE), False: itertools.cycle(_SAFE)}
    markers = itertools.cycle(_MARKERS)
    return {name: (next(colours[name in unsafe]), next(markers)) for name in report.planned}


def _prepare(axes: Axes, sweep: Sweep, *, title: str) -> None:
    from matplotlib.ticker import LogLocator

    axes.set_title(title, loc="left", fontsize=11.5, fontweight="bold")
    # Logarithmic, because sizes are usually multiples: on a linear axis the small ones would lie on one another.
    axes.set_xscale("log", base=2 if sweep.axis == "workers" else 10)
    axes.set_xticks(sweep.values, [f"{value:,}" for value in sweep.values])
    axes.minorticks_off()
    axes.set_xlabel(sweep.axis)
    if title == _LATENCY:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


# Texts.


def _title(report: LoadReport, sweep: Sweep) -> str:
    if sweep.axis == "workers":
        where = counted(report.load["accounts"], "account")
        return f"How throughput and latency grow with the number of workers, on {where}"
    return (
        f"How throughput and latency change with the number of accounts, for {counted(report.plan.workers, 'worker')}"
    )


def _settings(report: LoadReport) -> str:
    environment = report.environment
    names = ("isolation", "synchronous_commit", "fsync")
    settings = [f"{name} {environment[name]}" for name in names if name in environment]
    load = f"deposit:withdraw:transfer {report.load['mix']}"
    return " · ".join([environment["database"], *settings, *report.versions, load, f"{report.plan.extent} each"])


def _legend(report: LoadReport) -> str:
    cut = f"Interrupted by {report.interrupted}, so it is not complete. " if report.interrupted else ""
    if any(row.wrong for row in report.rows):
        return f"{cut}Dashed, with a cross: balances were wrong at the end (lost updates or an overdrawn account)."
    return f"{cut}All balances were right at the end."


def _describe_lines(report: LoadReport, sweep: Sweep) -> Iterable[str]:
    for name in report.planned:
        values = "; ".join(
            f"{sweep.describe(value)}: {figures(row)}" + (", wrong" if row.wrong else "")
            for value, row in report.line(name).items()
        )
        yield f"{name}: {values or 'not measured'}."
