"""Actors that misbehave: what is said of them, and that nothing of theirs is left behind."""

import socket
import threading
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import F

from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.lab.explorer.driver.actors import Actor
from django_lockstep.lab.explorer.driver.wait_monitor import WaitMonitor
from tests.django_lockstep.lab.explorer import stories
from tests.support.sessions import PATIENCE, query, sessions, until
from tests.testapps.shop.models import Seat

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("nothing_stays", "no_seats")]


def beside(actor: stories.Actor) -> Scenario:
    """The actor beside one that raises the price."""
    return Scenario(set_up=stories.one_seat, actors=[actor, stories.computed], observe=stories.price)


def kills_itself(pk: int) -> None:
    with transaction.atomic():
        Seat.objects.filter(pk=pk).update(price=F("price") + 1)
        query("SELECT pg_terminate_backend(pg_backend_pid())")


def test_an_actor_may_lose_its_connection() -> None:
    result = explore(beside(kills_itself), raises=OperationalError)

    assert result.verdict == "holds"
    assert {(o.errors["A"], o.state) for o in result.outcomes} == {("57P01", "110.00")}


def leaves_a_transaction_open(pk: int) -> None:
    transaction.set_autocommit(False)
    Seat.objects.filter(pk=pk).update(price=F("price") + 1)


def leaves_a_block_open(pk: int) -> None:
    transaction.atomic().__enter__()
    Seat.objects.filter(pk=pk).update(price=F("price") + 1)


@pytest.mark.parametrize("actor", [leaves_a_transaction_open, leaves_a_block_open])
def test_a_transaction_left_open_ends_with_its_actor(actor: stories.Actor) -> None:
    result = explore(beside(actor))

    assert (result.verdict, {o.state for o in result.outcomes}) == ("holds", {"110.00"})


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_whatever_an_actor_raises_is_an_outcome(error: type[BaseException]) -> None:
    def raising(pk: int) -> None:
        with transaction.atomic():
            Seat.objects.filter(pk=pk).update(price=F("price") + 1)
            raise error

    result = explore(beside(raising), raises=error)

    assert result.verdict == "holds"
    assert {(o.errors["A"], o.state) for o in result.outcomes} == {(error.__name__, "110.00")}


def test_a_short_pause_is_no_trouble() -> None:
    def pausing(pk: int) -> None:
        threading.Event().wait(0.02)
        stories.computed(pk)
        threading.Event().wait(0.02)

    assert explore(beside(pausing)).verdict == "holds"


news = threading.Event()


def bring_news() -> None:
    news.set()
    until(lambda: "race actor A" not in {thread.name for thread in threading.enumerate()}, "the thread to end")
    news.clear()


def waits_for_news(pk: int) -> None:
    news.wait()


def waits_inside_a_transaction(pk: int) -> None:
    with transaction.atomic():
        Seat.objects.filter(pk=pk).update(price=F("price") + 1)
        news.wait()
        Seat.objects.filter(pk=pk).update(price=F("price") + 1)


def calls_out(pk: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        threading.Thread(target=lambda: news.wait() and theirs.send(b"!")).start()
        ours.recv(1)


def goes_on_without_a_statement(pk: int) -> None:
    while not news.is_set():
        str(pk)


@pytest.mark.parametrize(
    ("actor", "line"),
    [
        (waits_for_news, "in waits_for_news: news.wait()"),
        (waits_inside_a_transaction, "in waits_inside_a_transaction: news.wait()"),
        (calls_out, "ours.recv(1)"),
        (goes_on_without_a_statement, "in goes_on_without_a_statement: "),
    ],
)
def test_who_waits_for_something_else_is_reported_and_loses_its_session(
    actor: stories.Actor, line: str, no_kept_sessions: None
) -> None:
    before = sessions()

    result = explore(beside(actor), step_timeout=1.0)

    until(lambda: sessions() <= before, "the server to end the sessions")
    assert result.verdict == "stuck"
    assert line in result.reason
    assert "The sessions of A were ended; their threads still wait." in result.reason
    bring_news()


def catches_everything(pk: int) -> None:
    while True:
        try:
            stories.computed(pk)
            query("SELECT 1 FROM pg_sleep(60)")
        except Exception:  # noqa: BLE001
            connection.close()


def test_who_waits_in_statements_for_ever_is_stopped() -> None:
    result = explore(beside(catches_everything), step_timeout=1.0)

    assert result.verdict == "stuck"
    assert "pg_sleep" in result.reason
    assert "still wait" not in result.reason


def test_connecting_may_take_longer_than_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    connected, is_blocked, missed = Actor.connected, WaitMonitor._all_blocked, threading.Event()

    def connected_late(self: Actor, wrapper: Any) -> None:
        missed.wait(PATIENCE)
        connected(self, wrapper)

    def missing(self: WaitMonitor, unsettled: set[int]) -> bool:
        missed.set()
        return is_blocked(self, unsettled)

    monkeypatch.setattr(Actor, "connected", connected_late)
    monkeypatch.setattr(WaitMonitor, "_all_blocked", missing)
    assert explore(beside(waits_for_news), step_timeout=1e-9).verdict == "stuck"
    bring_news()
