"""The arena: a load on several strategies, started and watched on a page."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from accounts.models import Account, Entry
from accounts.races.fixture import Fixture
from accounts.races.load import AccountTrial, Mix, Workload
from accounts.strategies import STRATEGIES
from bank.arena import ArenaForm
from bank.arena_run import KEPT, ArenaProgress
from django_lockstep.lab.pages.store import LiveRun, Store, open_store
from django_lockstep.lab.simulator.load_plan import LoadPlan
from tests.support.sessions import PATIENCE, query, until

pytestmark = pytest.mark.django_db(transaction=True)

ARENA, LANES = reverse("arena"), reverse("arena-lanes")
SHORT = {
    "strategies": ["naive", "pessimistic"],
    "workers": "2",
    "accounts": "1",
    "deposits": "1",
    "withdrawals": "1",
    "transfers": "0",
    "think_time": "0",
    "seconds": "1",
}


@pytest.fixture(autouse=True)
def store(settings: Any, tmp_path: Path) -> Iterator[Store]:
    settings.LOCKSTEP_LAB_LIVE_FOLDER = tmp_path
    settings.LOCKSTEP_LAB_RUNS_IN_PAGES = settings.LOCKSTEP_LAB_PUBLIC = True
    yield open_store()
    until(lambda: sessions() == 0, "the workers' sessions to end", patience=3 * PATIENCE)
    assert (Account.objects.count(), Entry.objects.count(), get_user_model().objects.count()) == (0, 0, 0)


def sessions() -> int:
    """How many sessions of a simulation there are."""
    return int(query("SELECT count(*) FROM pg_stat_activity WHERE starts_with(application_name, 'simulate-')"))


def start(**changes: Any) -> None:
    assert Client().post(ARENA, SHORT | changes).status_code == 302


def page() -> str:
    return Client().get(ARENA).content.decode()


def run_of(store: Store) -> LiveRun:
    run = store.run()
    assert run is not None
    return run


def wait_for_lanes(store: Store) -> None:
    def runs() -> bool:
        page()  # watches
        progress = run_of(store).progress
        return isinstance(progress, ArenaProgress) and any(lane.rates for lane in progress.lanes)

    until(runs, "operations", patience=3 * PATIENCE)


# The form


def test_a_link_fills_the_form_in_and_starts_nothing(store: Store) -> None:
    text = Client().get(ARENA, SHORT | {"workers": "7"}).content.decode()
    assert re.search(r'name="workers" value="7"', text)
    assert store.run() is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers": "17"}, "less than or equal to 16"),
        ({"seconds": "x"}, "whole number"),
        ({"strategies": ["nobody"]}, "nobody is not one of the available choices"),
        ({"strategies": []}, "required"),
        ({"deposits": "0", "withdrawals": "0"}, "One of the weights has to be more than 0."),
        ({"transfers": "1"}, "Transfers need two accounts or more."),
        ({"strategies": list(STRATEGIES), "seconds": "10"}, "would take 100 seconds; 60 are allowed"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_message(store: Store, changes: Any, message: str) -> None:
    answer = Client().post(ARENA, SHORT | changes)
    assert (answer.status_code, message in answer.content.decode()) == (400, True)
    assert store.run() is None


def test_the_first_form_can_be_sent_as_it_is() -> None:
    fields = ArenaForm().fields
    assert ArenaForm({name: field.initial for name, field in fields.items()}).is_valid()


def test_others_than_staff_start_nothing_where_the_lab_is_not_public(settings: Any) -> None:
    settings.LOCKSTEP_LAB_PUBLIC = False
    assert [Client().post(ARENA, SHORT).status_code, Client().get(LANES).status_code] == [302, 302]


# A run


def test_it_is_watched_lane_by_lane_and_leaves_a_report(store: Store) -> None:
    start()
    wait_for_lanes(store)
    text = Client().get(LANES).content.decode()
    assert "<polyline" in text
    assert ">pessimistic</th>" in text
    until(lambda: "Each strategy under this load" in page(), "the run to end", patience=3 * PATIENCE)
    report = json.loads(Client().get(reverse("arena-download", args=["json"])).content)
    verdicts = {row["strategy"]: row["verdict"] for row in report["strategies"]}
    assert set(verdicts) == {"naive", "pessimistic"}
    assert verdicts["pessimistic"] == "correct"
    drawing = ET.fromstring(Client().get(reverse("arena-download", args=["svg"])).content)  # noqa: S314 - our own
    assert [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")].count("pessimistic") == 1
    assert '<table class="lanes results">' in page()
    command = "simulate --strategies naive pessimistic --workers 2 --accounts 1 --mix 1:1:0 --duration 1"
    assert command in page()


def test_stopping_it_keeps_what_was_measured(store: Store) -> None:
    start(seconds="10")
    wait_for_lanes(store)
    Client().post(reverse("lockstep_lab:stop"), {"token": run_of(store).token, "page": ARENA})
    until(lambda: "It was stopped early." in page(), "the run to end", patience=3 * PATIENCE)
    assert run_of(store).state == "stopped"
    assert all(row.cut_short for row in store.get(KEPT).report.rows)


def test_it_ends_when_its_page_is_gone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_lockstep.lab.pages.store.UNWATCHED", 3.0)
    start(seconds="10")
    wait_for_lanes(store)
    until(lambda: run_of(store).state == "stopped", "the run to end", patience=3 * PATIENCE)


def test_there_is_nothing_to_download_before() -> None:
    assert [Client().get(reverse("arena-download", args=[form])).status_code for form in ("json", "svg")] == [404, 404]


# What the accounts hold


def test_money_off_is_what_entries_say_and_accounts_do_not_hold() -> None:
    fixture = Fixture.make(Account, using="default", name="simulation-test")
    trial = AccountTrial(
        label="it",
        plan=LoadPlan(),
        strategies=(STRATEGIES["naive"],),
        fixture=fixture,
        workload=Workload(accounts=2, mix=Mix(), seed=1),
    )
    trial.open()
    first, second = trial.versions
    STRATEGIES["naive"].deposit(first, 10)
    before = trial.balances()
    Account.objects.filter(pk=first).update(balance=495)
    Account.objects.filter(pk=second).update(balance=515)
    after = trial.balances()
    assert (before.stored, before.booked, before.difference) == (1010, 1010, 0)
    assert (after.stored, after.booked, after.difference) == (1010, 1010, 30)
    fixture.purge()
