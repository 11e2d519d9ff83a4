"""The plot of a sweep: for those who look, for those who cannot, and where it cannot be drawn."""

import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.render import as_plot
from tests.django_lockstep.lab.sample_rows import naive, row, sweep_report

SVG = "{http://www.w3.org/2000/svg}"
REPORT = sweep_report(
    (1, naive(verdict=row("x").verdict), row("a", rate=500)), (2, naive(), row("a", rate=450, p99=None))
)


def drawn(report: object = REPORT) -> ElementTree.Element:
    return ElementTree.fromstring(as_plot(report, form="svg"))  # type: ignore[arg-type] # noqa: S314 - our own words


def texts(svg: ElementTree.Element) -> set[str]:
    return {"".join(element.itertext()).strip() for element in svg.iter(f"{SVG}text")}


def test_text_stays_text() -> None:
    assert {"Operations per second", "workers", "1", "2", "a", "naive (wrong)"} <= texts(drawn())


def test_settings_stand_above_it() -> None:
    (settings,) = (text for text in texts(drawn()) if text.startswith("PostgreSQL"))
    assert "PostgreSQL 18.4 · isolation read committed" in settings
    assert "deposit:withdraw:transfer 1:1:0 · 3 s each" in settings


def test_a_description_is_for_those_who_cannot_see_it() -> None:
    svg = as_plot(REPORT, form="svg").decode()
    assert "naive: 1 worker: 100/s, p99 10.0 ms; 2 workers: 100/s, p99 10.0 ms, wrong." in svg


def test_red_is_for_strategies_that_claim_nothing() -> None:
    lines = re.findall(r"fill: none;[^\"]* stroke: (#\w{6}); stroke-width: 1.8", as_plot(REPORT, form="svg").decode())
    assert lines == ["#b00020", "#0072b2"] * 3  # in two diagrams and the legend


def test_where_all_were_right_nothing_is_marked() -> None:
    words = texts(drawn(sweep_report((4, row("a")))))
    assert "All balances were right at the end." in words
    assert not any("(wrong)" in text for text in words)


def test_a_part_of_a_sweep_is_a_plot_too() -> None:
    part = sweep_report((1, row("a")), values=(1, 2), planned=("a", "b"), interrupted="SIGINT")
    assert any(text.startswith("Interrupted by SIGINT, so it is not complete.") for text in texts(drawn(part)))


def test_the_same_figures_give_the_same_file() -> None:
    assert as_plot(REPORT, form="svg") == as_plot(REPORT, form="svg")


def test_a_picture_for_slides() -> None:
    assert as_plot(REPORT, form="png").startswith(b"\x89PNG")


def test_without_matplotlib_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SimulationError, match="extra 'plot'"):
        as_plot(REPORT, form="svg")
