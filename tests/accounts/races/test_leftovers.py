"""What killed runs leave behind is found and removed; what belongs to the living, or to others, is not."""

import os
import signal
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction

from accounts.models import Account, Entry
from accounts.races.fixture import Fixture, PurgeError, mark_running, new_name
from accounts.strategies import STRATEGIES
from tests.accounts.races.commands import any_left, sessions, simulating
from tests.support.factories import AccountFactory
from tests.support.sessions import Session, query, until

pytestmark = pytest.mark.django_db(transaction=True)


def left_behind(name: str = "") -> str:
    fixture = Fixture.make(Account, using="default", name=name or new_name())
    (pk,) = fixture.open_accounts(1, balance=Decimal(100), overdraft_limit=Decimal(0))
    STRATEGIES["pessimistic"].deposit(pk, 1)
    return str(fixture.user.get_username())


def fixtures_left() -> list[Fixture]:
    return list(Fixture.left_behind(Account, using="default"))


def test_remains_are_found_and_removed() -> None:
    names = [left_behind(), left_behind()]
    assert [fixture.name for fixture in fixtures_left()] == names
    assert [fixture.purge_if_over() for fixture in fixtures_left()] == [True, True]
    assert not Entry.objects.exists()
    assert fixtures_left() == []


def test_others_are_not_found() -> None:
    AccountFactory.create()
    get_user_model().objects.create_user("simulate-me")
    get_user_model().objects.create_user(new_name(), password="somebody's")
    assert fixtures_left() == []


LOCK_KEY = "hashtextextended('accounts.races:' || %s, 0)"


def test_a_run_that_lives_keeps_its_rows(other: Session) -> None:
    name = left_behind()
    other.run(query, f"SELECT pg_advisory_lock({LOCK_KEY})", name)
    assert [fixture.purge_if_over() for fixture in fixtures_left()] == [False]
    other.run(query, f"SELECT pg_advisory_unlock({LOCK_KEY})", name)
    assert [fixture.purge_if_over() for fixture in fixtures_left()] == [True]


def test_workers_that_live_keep_the_rows_of_a_parent_that_died(other: Session) -> None:
    name = left_behind()
    other.run(query, "SELECT set_config('application_name', %s, false)", f"{name}-00001")
    assert [fixture.purge_if_over() for fixture in fixtures_left()] == [False]
    other.run(query, "SELECT set_config('application_name', '', false)")
    assert [fixture.purge_if_over() for fixture in fixtures_left()] == [True]


def test_the_living_hold_their_lock_and_give_it_back(other: Session) -> None:
    name = new_name()
    try_to_hold = f"SELECT pg_try_advisory_lock({LOCK_KEY})"
    with mark_running(name, using="default"):
        assert not other.run(query, try_to_hold, name)
    assert other.run(query, try_to_hold, name)
    other.run(query, f"SELECT pg_advisory_unlock({LOCK_KEY})", name)


def test_what_a_killed_run_left_is_removed_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with simulating("--duration", "600", "--workers", "2", "--strategies", "pessimistic") as process:
        call_command("simulate", clean=True)
        assert "skipped: still running" in capsys.readouterr().out
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        until(lambda: not any_left(process.pid), "the end of all processes")
        until(lambda: sessions() == 0, "the end of their sessions")
    call_command("simulate", clean=True)
    assert "removed" in capsys.readouterr().out
    assert not Entry.objects.exists()
    call_command("simulate", clean=True)
    assert "No rows of an earlier simulation are left." in capsys.readouterr().out


def test_what_cannot_be_removed_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    name = left_behind()

    def fail(fixture: Fixture) -> None:
        raise PurgeError("somebody is in the way")

    monkeypatch.setattr(Fixture, "purge", fail)
    with pytest.raises(CommandError, match=f"Could not remove {name}"):
        call_command("simulate", clean=True)
    assert "somebody is in the way" in capsys.readouterr().err


# What a simulation leaves behind: nothing


@pytest.fixture
def fixture() -> Fixture:
    return Fixture.make(Account, using="default", name=new_name())


def used(fixture: Fixture) -> int:
    (pk,) = fixture.open_accounts(1, balance=Decimal(100), overdraft_limit=Decimal(0))
    for _ in range(3):
        STRATEGIES["pessimistic"].deposit(pk, 1)
    return int(pk)


@pytest.mark.parametrize("batch", [20_000, 2], ids=["at once", "in batches"])
def test_everything_of_its_own_is_removed(fixture: Fixture, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounts.races.fixture._BATCH", batch)
    used(fixture)
    fixture.purge()
    assert not Account.objects.exists()
    assert not Entry.objects.exists()
    assert not get_user_model().objects.exists()


def test_rows_of_others_stay_and_stay_protected(fixture: Fixture) -> None:
    theirs = AccountFactory.create()
    STRATEGIES["pessimistic"].deposit(theirs.pk, 1)
    used(fixture)
    fixture.purge()
    assert Entry.objects.get().account_id == theirs.pk
    with pytest.raises(IntegrityError, match="append-only"):
        query("DELETE FROM accounts_entry")


def test_no_trigger_no_trouble(fixture: Fixture) -> None:
    used(fixture)
    with transaction.atomic():
        query("ALTER TRIGGER accounts_append_only ON accounts_entry RENAME TO another_name")
        query("ALTER TABLE accounts_entry DISABLE TRIGGER another_name")
        fixture.purge()
        transaction.set_rollback(True)
    fixture.purge()
    assert not Entry.objects.exists()


@pytest.mark.slow
def test_who_is_in_the_way_is_not_waited_for_long(fixture: Fixture, other: Session) -> None:
    pk = used(fixture)
    other.begin()
    other.run(STRATEGIES["pessimistic"].deposit, pk, 1)
    with pytest.raises(PurgeError, match="lock timeout"):
        fixture.purge()
    other.end()
    fixture.purge()
    assert not Entry.objects.exists()
