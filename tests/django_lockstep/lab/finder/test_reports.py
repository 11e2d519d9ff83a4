"""The report in five formats, on candidates and findings made by hand, and the races that a project accepts."""

import json
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from django.core.management import CommandError, call_command

from django_lockstep.lab.explorer import Run, Step, svg, timeline
from django_lockstep.lab.explorer.render.reports import run_data
from django_lockstep.lab.finder.derive.candidates import Candidate, Partner, Witness
from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.findings import Finding, Findings
from django_lockstep.lab.finder.record.recording import RecordedStatement, RecordingWriter, Site
from django_lockstep.lab.finder.report.files import write_reports
from django_lockstep.lab.finder.report.races import Report, read_suppressions
from tests.django_lockstep.lab.finder.builders import TABLES, row, sent, site, unit
from tests.django_lockstep.lab.finder.test_findings import candidate as made_up
from tests.django_lockstep.lab.finder.test_findings import confirmed as of_schedule
from tests.django_lockstep.lab.finder.test_findings import findings

SOURCE = """def sell(pk):
    seat = Seat.objects.get(pk=pk)
    seat.price += 10
    seat.save()
"""


def read(actor: str, move: int) -> Step:
    sql = 'SELECT "seat"."price" FROM "seat" WHERE "seat"."id" = %s'
    fields: dict[str, Any] = {"params": "(1,)", "arguments": ("1",), "source": "box/office.py:2"}
    return Step(actor=actor, begun=move, ended=move, sql=sql, rows=1, values=({"price": "100"},), **fields)


def write(actor: str, move: int) -> Step:
    sql = 'UPDATE "seat" SET "price" = %s WHERE "seat"."id" = %s'
    fields: dict[str, Any] = {"params": "(110, 1)", "arguments": ("110", "1"), "source": "box/office.py:4"}
    return Step(actor=actor, begun=move, ended=move, sql=sql, rows=1, **fields)


RUN = Run(
    schedule="ABBA",
    preemptions=1,
    steps=(read("A", 0), read("B", 1), write("B", 2), write("A", 3)),
    errors={},
    results={"A": "200", "B": "200"},
    state={"seat": [{"price": 110}]},
    holds=False,
    reason="No order of A, B ends like this",
    differences=("seat: price 110 instead of 120",),
)


def candidate(name: str = "a1", **fields: Any) -> Candidate:
    accesses = {
        "read": RecordedStatement(site=site(2), sql="SELECT price FROM seat"),
        "write": RecordedStatement(site=site(4), sql="UPDATE seat"),
    }
    witnesses = (Witness(test="tests/test_office.py::test_sell", number=0),)
    return made_up(name, **{"unit": "POST sell/", **accesses, "witnesses": witnesses, **fields})


def confirmed(name: str = "a1", **fields: Any) -> Finding:
    shown: dict[str, Any] = {
        "reason": RUN.reason,
        "test": "tests/test_office.py::test_sell",
        "remedy": "with this change 8 schedules end as serial orders do",
        "run": run_data(RUN),
        "timeline": timeline(RUN),
        "drawing": svg(RUN, ident=name, styled=False),
        "test_file": "test_sell_does_not_race = raced(test_office.test_sell)\n",
    }
    return of_schedule(name, **{"candidate": candidate(name), "fault": "box/office.py:4", **shown, **fields})


ACCEPTED = {"b2": "one cashier only"}
FINDINGS = [
    confirmed("b2", candidate=candidate("b2", unit="POST refund/")),
    confirmed("a1"),
    Finding(candidate=candidate("c3"), verdict="not confirmed", reason="4 schedules leave what serial ones do"),
    Finding(candidate=candidate("d4", kind="lock-order"), verdict="not tried", reason="the time was over"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "office.py").write_text(SOURCE)
    return tmp_path


def report_of(root: Path, *shown: Finding, suppressions: Mapping[str, str] = {}, **options: Any) -> Report:
    store = Findings(root / "findings", [finding.candidate for finding in shown], **options)
    for finding in shown:
        store.add(finding)
    return Report(store, suppressions, root=root)


@pytest.fixture
def report(root: Path) -> Report:
    return report_of(root, *FINDINGS, suppressions=ACCEPTED, summary="4 candidates")


def written(report: Report, ending: str) -> str:
    path = report.root / f"report{ending}"
    write_reports(report, path, None)
    assert [item.name for item in report.root.iterdir() if "report" in item.name] == [path.name]
    return path.read_text()


def test_the_text_names_what_is_suppressed(report: Report) -> None:
    text = written(report, ".txt")

    assert (
        "\n1. CONFIRMED: seat ends with price 110 instead of 120.\n  read-modify-write a1 at box/office.py:4, in POS"
        in text
    )
    assert "\n2. CONFIRMED: seat ends with price 110 instead of 120.\n  suppressed: one cashier only\n" in text
    assert "\nnot tried:\n  1 candidate: the time was over\n    in POST sell/\n" in text
    assert text.splitlines()[-4:] == [
        "1. seat ends with price 110 instead of 120. POST sell/, at box/office.py:4",
        "2. suppressed: seat ends with price 110 instead of 120. POST refund/, at box/office.py:4",
        "2 races; 4 candidates: 1 confirmed, 1 suppressed, 1 not confirmed, 1 not tried",
        "NOT ALL WAS LOOKED AT: 1 of 4 candidates left for a longer search",
    ]


def test_json_has_all_of_each_candidate(report: Report) -> None:
    data = json.loads(written(report, ".json"))
    first, second, _, last = data["candidates"]

    assert data["counts"] == {"confirmed": 1, "suppressed": 1, "not confirmed": 1, "not tried": 1}
    assert first["read"] == {"path": "box/office.py", "line": 2, "function": "sell", "sql": "SELECT price FROM seat"}
    assert (first["kind"], first["table"], first["unit"]) == ("read-modify-write", "seat", "POST sell/")
    assert (first["write"]["line"], first["tests"]) == (4, ["tests/test_office.py::test_sell"])
    assert (first["verdict"], first["schedule"]) == ("confirmed", "ABBA")
    assert first["difference"] == "seat: price 110 instead of 120"
    assert first["remedies"][0].startswith("compute and check in the UPDATE")
    assert first["run"]["steps"][0]["values"] == [{"price": "100"}]
    assert (second["verdict"], second["suppressed"]) == ("confirmed", "one cashier only")
    assert (last["verdict"], last["reason"], last["run"]) == ("not tried", "the time was over", None)


def test_a_test_case_fails_for_each_confirmed_one(report: Report) -> None:
    (suite,) = ET.fromstring(written(report, ".xml"))  # noqa: S314 - written by ourselves

    assert (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["skipped"]) == ("4", "1", "2")
    assert [[child.tag for child in case] for case in suite] == [["failure"], ["skipped"], [], ["skipped"]]
    assert [case.attrib["message"] for case in suite.iter("skipped")] == [
        "suppressed: one cashier only",
        "not tried: the time was over",
    ]
    assert suite[0].attrib["file"] == "box/office.py"
    assert "instead of 120" in suite[0][0].attrib["message"]


def test_what_is_not_decided_has_not_passed(root: Path) -> None:
    finding = Finding(candidate=candidate("c3"), verdict="not decided", reason="more is left")
    report = report_of(root, finding)

    assert "0 races; 1 candidate: 0 confirmed, 1 not decided, 0 not confirmed" in written(report, ".txt")
    (root / "report.txt").unlink()
    assert '<skipped message="not decided: more is left"' in written(report, ".xml")


def test_sarif_has_the_suppression_and_the_steps(report: Report) -> None:
    (run,) = json.loads(written(report, ".sarif"))["runs"]
    first, second, last = run["results"]

    assert [item["level"] for item in run["results"]] == ["error", "error", "note"]
    assert "suppressions" not in first
    assert second["suppressions"] == [{"kind": "external", "justification": "one cashier only"}]
    assert [flow["id"] for flow in first["codeFlows"][0]["threadFlows"]] == ["A", "B"]
    (flow,) = last["codeFlows"][0]["threadFlows"]
    assert [place["location"]["message"]["text"] for place in flow["locations"]] == ["reads seat", "writes seat"]
    assert first["locations"][0]["physicalLocation"]["region"] == {"startLine": 4}


class Page(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.marked: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_shows_sites_timeline_remedies_and_test(report: Report) -> None:
    page = written(report, ".html")

    assert "<strong>1</strong> suppressed" in page
    assert '<mark><span class="line">2</span>    seat = Seat.objects.get(pk=pk)\n</mark>' in page
    assert '<mark><span class="line">4</span>    seat.save()\n</mark>' in page
    assert Page(page).tags.count("svg") == 2
    assert "Suppressed: one cashier only" in page
    assert "<strong>Tried:</strong> with this change 8 schedules end as serial orders do" in page
    assert "test_sell_does_not_race = raced" in page


def test_a_file_that_is_gone_leaves_the_page_without_lines(report: Report) -> None:
    (report.root / "box" / "office.py").unlink()

    assert "<mark>" not in written(report, ".html")


def test_the_page_needs_nothing_else(report: Report) -> None:
    page = Page(written(report, ".html"))

    assert {"link", "img", "iframe", "object"}.isdisjoint(page.tags)
    assert {"src", "href", "style", "onclick"}.isdisjoint(name for name, _ in page.attributes)
    assert not any("@import" in text or "http" in text for text in page.texts)


def test_what_comes_from_outside_is_escaped(root: Path) -> None:
    poison = '<b onclick="x">\'&amp;</b></script></style>'
    steps = tuple(replace(step, sql=step.sql.replace("seat", poison), source=f"{poison}:3") for step in RUN.steps)
    run = replace(RUN, steps=steps, reason=poison, differences=(poison,))
    (root / "box" / "office.py").write_text(f"{poison}\n" * 5)
    texts = dict.fromkeys(("table", "unit", "sentence"), poison)
    place = Site(path="box/office.py", line=2, function=poison)
    access = RecordedStatement(site=place, sql=poison)
    partner = Partner(unit=poison, kind="request", witnesses=())
    evil = candidate(**texts, columns=(poison,), partners=(partner,), read=access, write=replace(access, site=None),
                     witnesses=(Witness(test=poison, number=0),))  # fmt: skip
    names = ("reason", "pairing", "schedule", "remedy", "test_file")
    finding = confirmed(
        candidate=evil,
        **dict.fromkeys(names, poison),
        differences=(poison,),
        timeline=timeline(run),
        drawing=svg(run, ident="a", styled=False),
    )
    poisoned = report_of(root, finding, suppressions={"a1": poison}, notes=(poison,), summary=poison)
    page = Page(written(poisoned, ".html"))

    assert "b" not in page.tags
    assert "onclick" not in {name for name, _ in page.attributes}
    assert (page.tags.count("script"), page.tags.count("style")) == (1, 1)
    assert sum(poison in text for text in page.texts) > 15


@pytest.fixture
def recording(root: Path) -> Path:
    """A recording with one candidate."""
    path = root / "races.jsonl"
    writer = RecordingWriter(path)
    writer.write_unit(
        unit(
            sent("SELECT price FROM seat WHERE id = %s", 1, read=[row("seat", 1, price=100)]),
            sent("UPDATE seat SET price = %s WHERE id = %s", 110, 1),
        )
    )
    writer.write_tables(TABLES.values())
    writer.close(tests=1, notes=["No note"])
    return path


def test_what_has_no_finding_yet_is_not_tried(recording: Path, root: Path) -> None:
    store = Findings.on(recording)
    report = Report(store, {}, root=root)
    (finding,) = report.findings

    assert (finding.status, finding.reason) == ("not tried", "nothing was tried yet")
    assert "1. read-modify-write" in written(report, ".txt")
    assert "No note\n1 candidate in 1 unit of work that write, from 1 test" in written(report, ".txt")

    store.add(confirmed(candidate=finding.candidate))

    assert Report(Findings.on(recording), {}, root=root).findings[0].status == "confirmed"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"report": Path("races.doc")}, "--report races.doc: the name of a report must end"),
        ({}, r"--budget: processes that try are started from the command line only, not by call_command\(\)"),
        ({"processes": 0}, "--processes: there must be at least 1, not 0"),
        (
            {"processes": 2, "confirm": Path("races.jsonl")},
            "--processes: 2 try candidates of a new recording only; --confirm goes",
        ),
    ],
)
def test_the_command_refuses_before_any_test_what_cannot_be(options: dict[str, Any], why: str) -> None:
    with pytest.raises(CommandError, match=why) as refused:
        call_command("find_races", "tests.none", **options)

    assert refused.value.returncode == 2


# Suppressed races in pyproject.toml.


def settings_of(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_each_names_a_site_and_a_reason(tmp_path: Path) -> None:
    settings_of(
        tmp_path,
        '[[tool.lockstep.races]]\nsite = "a.py sell"\nreason = "one cashier"\n'
        '[[tool.lockstep.races]]\nsite = "b.py"\nreason = "a counter"\n',
    )

    assert read_suppressions(tmp_path) == {"a.py sell": "one cashier", "b.py": "a counter"}


@pytest.mark.parametrize("text", ["", "[tool.other]\na = 1", "[tool.lockstep]\na = 1"])
def test_a_project_without_any(tmp_path: Path, text: str) -> None:
    assert read_suppressions(tmp_path) == read_suppressions(settings_of(tmp_path, text)) == {}


@pytest.mark.parametrize(
    "entry",
    [
        'site = "a.py"',
        'site = "a.py"\nreason = ""',
        'site = "a.py"\nreason = " "',
        'reason = "because"',
        "",
        "site = 1\nreason = 2",
    ],
)
def test_one_without_a_reason_is_refused(tmp_path: Path, entry: str) -> None:
    with pytest.raises(FinderError, match="must have site and reason, not {"):
        read_suppressions(settings_of(tmp_path, f"[[tool.lockstep.races]]\n{entry}"))
    with pytest.raises(FinderError, match=r"must be tables \[\[tool.lockstep.races\]\]"):
        read_suppressions(settings_of(tmp_path, f"[tool.lockstep.races]\n{entry}"))


@pytest.mark.parametrize(
    ("site", "covers"),
    [
        ("box/office.py", True),
        ("box/office.py sell", True),
        ("a1b2", True),
        ("box/office.py refund", False),
        ("office.py", False),
        ("sell", False),
    ],
)
def test_which_candidates_it_covers(site: str, covers: bool, tmp_path: Path) -> None:
    (finding,) = report_of(tmp_path, confirmed("a1b2"), suppressions={site: "known"}).findings
    assert (finding.suppressed == "known") is covers


def test_a_baseline_accepts_what_an_earlier_report_confirmed(tmp_path: Path) -> None:
    candidates = findings(tmp_path, "a1", "b2")
    candidates.add(confirmed("a1"))
    candidates.add(Finding(candidate=candidate("b2"), verdict="not confirmed", reason="no"))
    assert Report(candidates, {}, root=tmp_path).exit_status == 1
    write_reports(Report(candidates, {}, root=tmp_path), tmp_path / "races.json", None)

    accepted = read_suppressions(tmp_path, tmp_path / "races.json")

    assert accepted == {"a1": "in the baseline races.json"}
    assert Report(candidates, accepted, root=tmp_path).exit_status == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"candidates": [1]}'])
def test_what_is_no_report_is_no_baseline(tmp_path: Path, text: str) -> None:
    (tmp_path / "races.json").write_text(text)

    with pytest.raises(FinderError, match="races.json is no report in JSON"):
        read_suppressions(tmp_path, tmp_path / "races.json")
