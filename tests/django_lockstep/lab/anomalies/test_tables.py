"""What the server at hand allows, compared with what the literature says."""

from collections.abc import Iterator

import pytest

from django_lockstep.lab.anomalies import AnomalyReport, find_anomalies, select_cases
from django_lockstep.lab.anomalies.access_patterns import LEVELS, STRATEGIES
from django_lockstep.lab.anomalies.definitions import ANOMALIES
from django_lockstep.lab.anomalies.published import PUBLISHED

DIRTY = {"G0", "G1a", "G1b", "G1c", "OTV"}

# By strategy: a lock protects the rows that it is on, a version the row that is written, neither a row that is not
# there yet. What takes one lock for everything, or is serializable, allows nothing.
POSSIBLE = {
    "naive_atomic": {"PMP", "P4", "G-single", "G2-item", "G2"},
    "pessimistic": {"PMP", "G-single", "G2-item", "G2"},
    "pessimistic_all": {"PMP", "G2"},
    "optimistic": {"PMP", "G-single", "G2-item", "G2"},
    "conditional_update": {"PMP", "G-single", "G2-item", "G2"},
    "advisory": set(),
    "serializable": set(),
}


@pytest.fixture(scope="module")
def report(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[AnomalyReport]:
    """Both tables in full, found once for all tests of this module."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        yield find_anomalies(select_cases())


def possible(report: AnomalyReport, column: str, *, kind: str) -> set[str]:
    cells = [cell for cell in report.cells if (cell.kind, cell.column) == (kind, column)]
    return {cell.anomaly for cell in cells if cell.verdict == "possible"}


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_is_as_published(report: AnomalyReport, level: str) -> None:
    assert possible(report, level, kind="level") == PUBLISHED[level]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_strategy_protects_what_it_locks(report: AnomalyReport, strategy: str) -> None:
    assert possible(report, strategy, kind="strategy") == POSSIBLE[strategy]


def test_every_cell_was_explored_to_its_end(report: AnomalyReport) -> None:
    assert len(report.cells) == len(ANOMALIES) * (len(LEVELS) + len(STRATEGIES))
    assert report.incomplete == report.disagreements == ()


def test_what_is_possible_comes_with_the_run_that_shows_it(report: AnomalyReport) -> None:
    for cell in report.cells:
        shown = cell.run is not None and not cell.run.holds and cell.run.schedule == cell.schedule
        assert shown == (cell.verdict == "possible")


@pytest.mark.parametrize("name", sorted(DIRTY))
def test_dirty_reads_are_looked_for_in_more_than_one_order(report: AnomalyReport, name: str) -> None:
    assert all(report.cell("level", name, level).schedules > 1 for level in LEVELS)


@pytest.mark.parametrize(
    ("kind", "anomaly", "column", "how"),
    [
        ("level", "G0", "read committed", ("waits",)),
        ("level", "G1a", "read committed", ("snapshots",)),
        ("level", "P4", "repeatable read", ("waits", "40001")),
        ("level", "G2", "serializable", ("40001",)),
        ("strategy", "P4", "pessimistic", ("waits",)),
        ("strategy", "P4", "optimistic", ("waits", "StaleVersionError")),
        ("strategy", "G1c", "pessimistic_all", ("waits", "40P01")),
        ("strategy", "G-single", "optimistic", ()),
    ],
)
def test_it_says_what_prevents_an_anomaly(
    report: AnomalyReport, kind: str, anomaly: str, column: str, how: tuple[str, ...]
) -> None:
    assert report.cell(kind, anomaly, column).prevented_by == how  # type: ignore[arg-type]


def test_a_retried_serialization_failure_is_no_failure(report: AnomalyReport) -> None:
    cell = report.cell("strategy", "G2-item", "serializable")
    assert (cell.verdict, cell.prevented_by) == ("prevented", ("40001",))


def test_it_names_its_sources(report: AnomalyReport) -> None:
    assert any("github.com/ept/hermitage" in source for source in report.sources)
    assert any("postgresql.org" in source for source in report.sources)
