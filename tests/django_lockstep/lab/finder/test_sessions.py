"""How sessions that try candidates are started, what each of them tries, and the line that says how far they are."""

from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from django_lockstep.lab.finder.findings import Finding
from django_lockstep.lab.finder.session_plugins import _arguments, _test_id
from django_lockstep.lab.finder.sessions import Progress
from django_lockstep.lab.finder.shares import Share
from tests.django_lockstep.lab.finder.test_findings import candidate, confirmed, findings

ADDED = ["--rootdir=..", "--config-file=../pytest.ini", "--maxfail=0"]


def arguments(
    *words: object, options: Collection[str] = (), modules: Collection[object] = (), file: str | None = "pytest.ini"
) -> list[str]:
    folder = Path("/srv/shop")
    config: Any = SimpleNamespace(
        rootpath=folder,
        inipath=file and folder / file,
        invocation_params=SimpleNamespace(args=words, dir=folder / "tests", plugins=modules or None),
        option=SimpleNamespace(**dict.fromkeys(options)),
    )
    return list(_arguments(config, cache=Path("races/cache-1")))


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ((), []),
        (("--find-races", "shop", "-k", "seat", "--race-budget", "5m"), ["shop", "-k", "seat", "--race-budget", "5m"]),
        (("--ds=shop.settings", Path("shop/tests")), ["--ds=shop.settings", "shop/tests"]),
        (("--pdb", "--sw", "--stepwise-skip", "--trace"), []),
        (("-x", "--lf", "--reuse-db"), ["-x", "--lf", "--reuse-db"]),
    ],
)
def test_arguments_are_those_of_the_first_session(words: tuple[object, ...], kept: list[str]) -> None:
    assert arguments(*words) == [*kept, *ADDED]


def test_options_of_plugins_that_are_there_are_overruled() -> None:
    assert arguments(options={"numprocesses", "no_cov", "other"}) == [*ADDED, "-n0", "--no-cov"]
    assert arguments(options={"timeout", "xmlpath"}) == [*ADDED, "--timeout=0", "--junit-xml="]
    assert arguments(options={"lf"}) == [*ADDED, "--override-ini=cache_dir=races/cache-1"]


def test_plugins_and_settings_are_those_of_the_first_session() -> None:
    assert arguments(modules=[pytest, "shop.plugin", object()]) == [*ADDED[:2], "-ppytest", "-pshop.plugin", ADDED[2]]
    assert arguments(file=None) == [ADDED[0], ADDED[2]]


@pytest.mark.parametrize(
    ("nodeid", "marks"),
    [
        ("test_seats.py::test_it", []),
        ("test_seats.py::test_it", [pytest.mark.xdist_group("slow").mark]),
        ("test_seats.py::test_it@slow", [pytest.mark.xdist_group("slow").mark]),
        ("test_seats.py::test_it@default", [pytest.mark.xdist_group.mark]),
        ("test_seats.py::test_it@a_b", [pytest.mark.xdist_group(name=name).mark for name in ("b", "a")]),
    ],
)
def test_a_test_has_the_id_that_it_has_without_workers(nodeid: str, marks: list[pytest.Mark]) -> None:
    item: Any = SimpleNamespace(nodeid=nodeid, iter_markers=lambda name: marks)

    assert _test_id(item) == "test_seats.py::test_it"


# Candidates are dealt out to several processes: each to one, those of a unit together.


CANDIDATES = [
    candidate("mild", unit="GET c", rank=9),
    candidate("bad", unit="POST a", rank=1),
    candidate("worse", unit="POST b", rank=0),
    candidate("late", unit="POST a", rank=7),
]


def test_the_worst_units_are_dealt_out_first_and_each_stays_whole() -> None:
    assert Share(1, 2).of(CANDIDATES) == {"worse", "mild"}
    assert Share(2, 2).of(CANDIDATES) == {"bad", "late"}
    assert Share(2, 2).of(reversed(CANDIDATES)) == {"bad", "late"}
    assert Share().of(CANDIDATES) == {item.id for item in CANDIDATES}
    assert Share(4, 4).of(CANDIDATES) == set()


@pytest.mark.parametrize("text", ["", "2", "0/2", "3/2", "1/2/3", "-1/2"])
def test_a_share_is_read_as_it_is_written_and_other_texts_are_refused(text: str) -> None:
    assert Share.parse(str(Share(2, 3))) == Share(2, 3)
    with pytest.raises(ValueError, match="a share must be a text such as 1/2"):
        Share.parse(text)


# The line that says how far trying candidates has come.


CONFIRMED = "confirmed: read-modify-write b in POST b/: seat ends with price 110 instead of 120.\n"


def test_a_terminal_has_one_line_that_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    store, texts = findings(tmp_path, "a", "b", "c"), list[str]()
    progress = Progress(findings=store, write=texts.append, budget=300, is_terminal=True)
    progress.update([])
    decided = Finding(candidate=candidate("a"), verdict="not tried", reason="no time"), confirmed("b", spent=12.4)
    for finding in decided:
        store.add(finding)
        progress.update([finding])
    monkeypatch.setenv("COLUMNS", "20")
    progress.update([])
    progress.close()

    assert texts == [
        "\r\x1b[K0 of 3 candidates decided, 0 confirmed, 0 of 300 s",
        "\r\x1b[K1 of 3 candidates decided, 0 confirmed, 0 of 300 s",
        f"\r\x1b[K{CONFIRMED}",
        "\r\x1b[K2 of 3 candidates decided, 1 confirmed, 12 of 300 s",
        "\r\x1b[K2 of 3 candidates d",
        "\r\x1b[K",
    ]
