"""Runs that go on while pages show how far they are."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import reverse

from django_lockstep.lab.pages import process
from django_lockstep.lab.pages.exploring import RaceProgress
from django_lockstep.lab.pages.store import LiveRun, Store, open_store
from tests.django_lockstep.lab.pages.races import GATE, HERE
from tests.support.sessions import PATIENCE, Session, query, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_no_scratch_left")]

RACES, START, STOP, PROGRESS = (reverse(f"lockstep_lab:{name}") for name in ("races", "start", "stop", "progress"))


def race(name: str) -> str:
    return f"{HERE}.{name}"


@pytest.fixture(autouse=True)
def store(settings: Any, tmp_path: Path) -> Store:
    settings.LOCKSTEP_LAB_LIVE_FOLDER = tmp_path / "live"
    settings.LOCKSTEP_LAB_RUNS_IN_PAGES = settings.LOCKSTEP_LAB_PUBLIC = True
    settings.LOCKSTEP_LAB_RACES = [race("FALLING"), race("GATED"), race("LOCKED")]
    return open_store()


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    file = tmp_path / "gate"
    file.touch()
    monkeypatch.setenv(GATE, str(file))
    yield file
    file.unlink(missing_ok=True)


def shown(url: str = RACES) -> str:
    return Client().get(url).content.decode()


def start(name: str) -> None:
    assert Client().post(START, {"race": race(name)}).status_code == 302


def wait_for(text: str, url: str = RACES) -> str:
    until(lambda: text in shown(url), f"{text!r} on the page", patience=3 * PATIENCE)
    return shown(url)


def end(url: str = RACES) -> str:
    until(lambda: "Running now" not in shown(url), "the run to end", patience=3 * PATIENCE)
    return shown(url)


def is_free() -> bool:
    """Whether nobody holds the lock of those who run races in pages."""
    free: bool = query(process._LOCK)
    if free:
        query(process._UNLOCK)
    return free


# Watching


def test_every_visitor_sees_how_far_it_is_and_none_starts_another_or_stops_it_without_its_token(
    gate: Path, store: Store
) -> None:
    start("GATED")
    text = wait_for("schedule 2, ")
    assert f"<strong>{race('GATED')}</strong>" in text
    assert "Run all" not in text
    assert "schedule 2, 2 outcomes so far, one of them wrong" in wait_for("schedule 2, ", f"/lab/{race('LOCKED')}/")
    for url, data in [(START, {"race": race("LOCKED")}), (f"/lab/{race('LOCKED')}/", {})]:
        answer = Client().post(url, data)
        assert (answer.status_code, "Another page is running" in answer.content.decode()) == (409, True)
        assert "Running now" in answer.content.decode()
    Client().post(STOP, {"token": "another"})
    assert store.get("stop") is None
    gate.unlink()
    assert '<span class="verdict broken">broken</span>' in end()
    assert store.results()[race("GATED")].schedules == 6


def test_all_of_them_run_and_one_that_fails_stops_none(gate: Path, store: Store) -> None:
    gate.unlink()
    assert Client().post(START, {"all": "1"}).status_code == 302
    assert f"{race('FALLING')}: ZeroDivisionError: " in end()
    assert {name: result.verdict for name, result in store.results().items()} == {
        race("GATED"): "broken",
        race("LOCKED"): "holds",
    }


# Ending


def test_it_can_be_stopped(gate: Path, store: Store) -> None:
    start("GATED")
    wait_for("schedule 2, ")
    run = store.run()
    assert run is not None
    answer = Client().post(STOP, {"token": run.token, "page": f"/lab/{race('GATED')}/"})
    assert answer["Location"] == f"/lab/{race('GATED')}/"
    wait_for("the run is being stopped")
    gate.unlink()
    assert "The last run was stopped" in end()
    assert store.results()[race("GATED")].schedules < 6


@pytest.mark.parametrize("page", ["", "https://elsewhere.example/", "//elsewhere.example/"])
def test_stopping_leads_to_no_other_site(page: str) -> None:
    assert Client().post(STOP, {"token": "x", "page": page})["Location"] == RACES


@patch("django_lockstep.lab.pages.store.UNWATCHED", 3.0)
def test_it_ends_when_nobody_watches_even_in_code_that_does_not_end(gate: Path, store: Store) -> None:
    start("GATED")
    waits = gate.with_suffix(".waits")
    until(lambda: bool(shown()) and waits.exists(), "the race to wait", patience=3 * PATIENCE)
    until(lambda: (run := store.run()) is not None and run.state == "stopped", "it to end", patience=3 * PATIENCE)
    until(is_free, "the lock to be free", patience=3 * PATIENCE)
    gate.unlink()
    start("LOCKED")  # which also drops the database that the other one left
    end()


# Refusals


def test_a_get_a_post_without_its_token_and_an_unknown_race_start_and_stop_nothing() -> None:
    client = Client(enforce_csrf_checks=True)
    assert [client.get(url).status_code for url in (START, STOP)] == [405, 405]
    assert [client.post(url).status_code for url in (START, STOP)] == [403, 403]
    assert Client().post(START, {"race": "nobody"}).status_code == 404


@pytest.mark.parametrize("url", [START, STOP, PROGRESS])
def test_others_are_asked_to_log_in(settings: Any, url: str) -> None:
    settings.LOCKSTEP_LAB_PUBLIC = False
    answer = Client().get(url) if url == PROGRESS else Client().post(url)
    assert (answer.status_code, "/login/" in answer["Location"]) == (302, True)


def test_a_process_that_may_not_run_says_so(other: Session) -> None:
    other.run(query, process._LOCK)
    with patch.object(process, "exclusive_run", lambda connection: nullcontext()):
        start("LOCKED")
    assert "Another page is running a race" in end()


def test_it_does_not_hide_the_run_that_goes_on(other: Session, store: Store) -> None:
    other.run(query, process._LOCK)
    with patch.object(process, "exclusive_run", lambda connection: nullcontext()):
        start("LOCKED")
    theirs = LiveRun(token="theirs", state="running", progress=RaceProgress(names=("a race",)))
    store.publish(theirs)
    until(lambda: not children(), "the process to end", patience=3 * PATIENCE)
    assert store.run() == theirs


def children() -> list[str]:
    """Return the commands of this process's children that are processes of runs."""
    pids = [pid for task in Path("/proc/self/task").iterdir() for pid in text_of(task / "children").split()]
    commands = (text_of(Path("/proc", pid, "cmdline")) for pid in pids)
    return [command for command in commands if "lab.pages.process" in command]


def text_of(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # thread or process has ended meanwhile
        return ""


# How far it is


def running(**changes: Any) -> LiveRun:
    return LiveRun(token="x", state="running", progress=RaceProgress(names=("a race", "b"), number=1, **changes))


OVER = LiveRun(token="x", state="ended", progress=RaceProgress(names=("a race", "b")))


def test_who_asks_for_a_line_gets_one_and_is_informed_of_the_end(store: Store) -> None:
    store.publish(running(schedules=17, outcomes=3))
    answer = Client().get(PROGRESS)
    line = "<strong>a race</strong> (1 of 2): schedule 17, 3 outcomes so far"
    assert (answer.content.decode().strip(), "HX-Trigger" in answer) == (line, False)
    assert store.watched

    store.publish(OVER)
    answer = Client().get(PROGRESS)
    assert (answer.content, answer["HX-Trigger"]) == (b"", "over")


def test_it_is_said_in_the_visitors_language(store: Store) -> None:
    store.publish(running())
    assert "最初のスケジュール" in Client(headers={"accept-language": "ja"}).get(PROGRESS).content.decode()


# The folder


def test_a_folder_in_which_others_may_write_is_refused(settings: Any, tmp_path: Path) -> None:
    settings.LOCKSTEP_LAB_LIVE_FOLDER = tmp_path / "open"
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ImproperlyConfigured, match="must belong to the user of this process"):
        open_store()


def test_without_a_setting_it_is_this_users_alone(settings: Any, tmp_path: Path, monkeypatch: Any) -> None:
    del settings.LOCKSTEP_LAB_LIVE_FOLDER
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = open_store()
    assert not store.folder.exists()
    store.create()
    folder = store.folder
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)


def test_what_other_code_wrote_is_nothing(store: Store) -> None:
    store.publish(running())
    (file,) = store.folder.iterdir()
    file.write_bytes(b"what is no pickle")
    assert store.run() is None
