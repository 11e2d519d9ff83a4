"""How the second session is started."""

from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from django_lockstep.lab.finder.second_session import _arguments
from django_lockstep.lab.finder.session_plugins import _test_id
from django_lockstep.lab.finder.shares import Share

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
    return list(_arguments(config))


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


def test_plugins_and_settings_are_those_of_the_first_session() -> None:
    assert arguments(modules=[pytest, "shop.plugin", object()]) == [*ADDED[:2], "-ppytest", "-pshop.plugin", ADDED[2]]
    assert arguments(file=None) == [ADDED[0], ADDED[2]]


def test_each_of_several_sessions_has_a_test_database_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOX_PARALLEL_ENV", raising=False)
    assert "TOX_PARALLEL_ENV" not in Share(1, 2).environment()
    assert Share(2, 2).environment()["TOX_PARALLEL_ENV"] == "races2"

    assert Share(1, 2).environment(place="_3")["TOX_PARALLEL_ENV"] == "races1_3"

    monkeypatch.setenv("TOX_PARALLEL_ENV", "py311")
    assert [Share(number, 2).environment()["TOX_PARALLEL_ENV"] for number in (1, 2)] == ["py311", "py311races2"]


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
