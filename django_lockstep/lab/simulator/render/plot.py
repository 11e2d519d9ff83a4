"""A sweep as two panels: operations per second, and the 99th percentile of latency, over what was varied.

Every strategy has its own marker as well as its own colour, so that lines can be told apart without colour, and its
name stands at the end of its line. Colours are those of M. Okabe and K. Ito, "Color Universal Design", 2008, which
differ for all kinds of colour vision; red is for strategies that claim nothing. The line of a strategy that was wrong
is dashed, with a cross at each size where it was.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from django_lockstep.lab.simulator.advice import figures
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.load_plan import Sweep
from django_lockstep.lab.simulator.report import LoadReport, LoadRow
from django_lockstep.lab.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FORMATS", "as_plot", "require_matplotlib"]

FORMATS = ("svg", "png")
"""File name extensions of the formats."""

_SAFE = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#000000", "#56B4E9", "#7A5230", "#5D3A9B")
_UNSAFE = ("#B00020", "#D55E00")
"""Reds, which only strategies that claim nothing have."""
_MARKERS = "os^DvP*<>Xhp"
_INK, _GREY, _WRONG = "#222222", "#666666", "#B00020"
_GRID, _PAPER = "#DDDDDD", "#FFFFFF"
_DARK = {
    _PAPER: "#14181F",
    _INK: "#E6E6E6",
    _GREY: "#9DA5AF",
    _GRID: "#2C333B",
    _WRONG: "#FF8A80",
    "#0072B2": "#3D9BE9",
    "#000000": "#FFFFFF",
    "#7A5230": "#C08A5A",
    "#5D3A9B": "#A98BE0",
}
"""What colours become where the reader prefers dark pages; the other lines' are bright enough."""
_DASHED = (0, (4, 2))
_GAP = 0.052
"""Between the names of two lines, as a share of a panel's height."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotPanel:
    """One of the two diagrams."""

    title: str
    """What it shows."""
    logarithmic: bool
    """Whether its vertical axis is logarithmic."""
    figure: Callable[[LoadRow], float | None]
    """Returns the value to plot for a row."""


_PANELS = (
    PlotPanel(title="Operations per second", logarithmic=False, figure=lambda row: row.operations_per_second),
    PlotPanel(title="p99 latency in ms, logarithmic", logarithmic=True, figure=lambda row: row.latency_ms.p99),
)


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
    # For screen readers.
    description = " ".join([f"{settings}.", *_describe_lines(report, sweep), legend])
    with rc_context(_STYLE):
        drawing = Figure(figsize=(13.2, 5.8), facecolor=_PAPER)
        drawing.text(0.045, 0.945, title, fontsize=15, fontweight="bold")
        drawing.text(0.045, 0.9, settings, color=_GREY)
        drawing.text(0.045, 0.028, legend, color=_GREY)
        for number, panel in enumerate(_PANELS):
            axes = drawing.add_axes((0.045 + 0.5 * number, 0.15, 0.3, 0.66))
            _prepare(axes, panel, sweep)
            _draw_lines(axes, panel, report)
        file = io.BytesIO()
        metadata = {"Title": title, **({"Date": None} if form == "svg" else {"Description": description})}
        drawing.savefig(file, format=form, dpi=150, metadata=metadata)
    return _finish_svg(file.getvalue(), description) if form == "svg" else file.getvalue()


def _draw_lines(axes: Axes, panel: PlotPanel, report: LoadReport) -> None:
    ends, looks = [], _looks(report)
    for name in report.planned:
        rows = report.line(name).items()
        line = [(value, figure, row) for value, row in rows if (figure := panel.figure(row)) is not None]
        if line:
            _draw_line(axes, line, look=looks[name])
            ends.append((name, *line[-1][:2]))
    # From zero, so that the height of a line is in proportion to the rate.
    if not panel.logarithmic:
        axes.set_ylim(bottom=0)
    wrong = {row.strategy for row in report.rows if row.wrong}
    _name_lines(axes, ends, looks=looks, wrong=wrong)


def _looks(report: LoadReport) -> dict[str, tuple[str, str]]:
    """Return the colour and the marker of each strategy."""
    unsafe = {row.strategy for row in report.rows if not row.safe}
    colours = {True: itertools.cycle(_UNSAFE), False: itertools.cycle(_SAFE)}
    markers = itertools.cycle(_MARKERS)
    return {name: (next(colours[name in unsafe]), next(markers)) for name in report.planned}


def _prepare(axes: Axes, panel: PlotPanel, sweep: Sweep) -> None:
    from matplotlib.ticker import LogLocator

    axes.set_title(panel.title, loc="left", fontsize=11.5, fontweight="bold")
    # Logarithmic, because sizes are usually multiples: on a linear axis the small ones would lie on one another.
    axes.set_xscale("log", base=2 if sweep.axis == "workers" else 10)
    axes.set_xticks(sweep.values, [f"{value:,}" for value in sweep.values])
    axes.minorticks_off()
    axes.set_xlabel(sweep.axis)
    if panel.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_line(axes: Axes, line: Sequence[tuple[int, float, LoadRow]], *, look: tuple[str, str]) -> None:
    wrong = [(value, figure) for value, figure, row in line if row.wrong]
    values, figures, _ = zip(*line, strict=True)
    axes.plot(values, figures, linewidth=1.8, linestyle=_DASHED if wrong else "solid", **_marker(look, hollow=wrong))
    if wrong:
        axes.plot(*zip(*wrong, strict=True), linestyle="none", marker="x", color=_WRONG, markersize=9.5, mew=1.8)


def _marker(look: tuple[str, str], *, hollow: object) -> dict[str, Any]:
    colour, marker = look
    fill = _PAPER if hollow else colour
    return {"color": colour, "marker": marker, "markersize": 6.5, "markerfacecolor": fill, "clip_on": False}


def _name_lines(
    axes: Axes,
    ends: Sequence[tuple[str, int, float]],
    *,
    looks: Mapping[str, tuple[str, str]],
    wrong: Container[str],
) -> None:
    """Write each line's name beside its end, moved up or down where names would overlap, with a thin line to it."""
    axes.autoscale_view()
    axes.autoscale(enable=False)  # the lines added below must not change the scale
    to_axes = axes.transData - axes.transAxes
    places = [to_axes.transform((value, figure)) for _, value, figure in ends]
    heights = spread([float(place[1]) for place in places], gap=_GAP)
    for (name, _, _), (right, top), height in zip(ends, places, heights, strict=True):
        look = _marker(looks[name], hollow=name in wrong)
        axes.plot(
            (right + 0.018, 1.045), (top, height), color=look["color"], lw=0.7, clip_on=False, transform=axes.transAxes
        )
        axes.plot((1.065,), (height,), transform=axes.transAxes, **look)
        label = f"{name} (wrong)" if name in wrong else name
        axes.text(1.09, height, label, va="center", transform=axes.transAxes)


def spread(heights: Sequence[float], *, gap: float) -> list[float]:
    """Return the heights in the same order, moved as little as it takes to be ``gap`` apart and at most 1."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed = [heights[index] for index in order]
    for position in range(1, len(placed)):
        placed[position] = max(placed[position], placed[position - 1] + gap)
    ceiling = 1.0
    for position in reversed(range(len(placed))):
        placed[position] = min(placed[position], ceiling)
        ceiling = placed[position] - gap
    return [height for _, height in sorted(zip(order, placed, strict=True))]


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


def _finish_svg(svg: bytes, text: str) -> bytes:
    """Return the SVG with role, title and description for screen readers, and with colours for dark pages."""
    head, title, rest = svg.partition(b"</title>")
    head = head.replace(b"<svg ", b'<svg role="img" aria-labelledby="title desc" ', 1)
    head = head.replace(b"<title>", b'<title id="title">', 1)
    # matplotlib writes colours into each element's style, which only !important overrides.
    rules = " ".join(
        f'[style*="{part}: {light.lower()}"] {{ {part}: {dark} !important }}'
        for light, dark in _DARK.items()
        for part in ("fill", "stroke")
    )
    style = f"@media screen and (prefers-color-scheme: dark) {{ {rules} }}"
    return head + title + f'\n <desc id="desc">{escape(text)}</desc>\n <style>{style}</style>'.encode() + rest
