"""Which databases are raced on, by whom, and what is said where they could not be put back."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection, connections

from django_lockstep.lab.explorer import ExplorerError, NotExplorable, Scenario, explore, replay, write_spec
from django_lockstep.lab.explorer.tables.control_session import ControlSession, kept_sessions
from django_lockstep.lab.explorer.tables.databases import _CLAIM, is_test_database
from tests.django_lockstep.lab.explorer import stories
from tests.support.sessions import ADVISORY_LOCKS, Session, query, until
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)

LOCKED = Scenario(set_up=stories.one_seat, actors=[stories.locked] * 2)
CLAIMS = f"SELECT count(*) FROM {ADVISORY_LOCKS}"

# Whose rows


@pytest.mark.parametrize("run", [explore, lambda scenario: replay(scenario, "AAABBB"), write_spec])
def test_a_database_whose_rows_may_be_needed_is_refused(no_tests: None, run: Any) -> None:
    with pytest.raises(NotExplorable, match="neither a test database nor a scratch database.*database_is_mine=True"):
        run(LOCKED)
    assert not Seat.objects.exists()


def test_one_that_is_confirmed_is_not(no_tests: None, settings: Any) -> None:
    assert explore(LOCKED, database_is_mine=True).verdict == "holds"
    settings.LOCKSTEP_LAB_DISPOSABLE_DATABASES = ["default"]
    assert explore(LOCKED).verdict == "holds"


@pytest.mark.parametrize(
    ("name", "test_name", "made_for_tests"),
    [
        ("test_shop", None, True),
        ("test_shop_gw1", None, True),
        ("proof", "proof", True),
        ("proof_2", "proof", True),
        ("shop", None, False),
        ("shop", "proof", False),
    ],
)
def test_test_databases_are_known_by_the_name_that_django_gives(
    name: str, test_name: str | None, made_for_tests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "NAME", name)
    monkeypatch.setitem(connection.settings_dict["TEST"], "NAME", test_name)
    assert is_test_database(connection) is made_for_tests


def asks_beside(alias: str) -> Callable[[int], None]:
    def actor(pk: int) -> None:
        with suppress(Exception), connections[alias].cursor() as cursor:  # code that goes on without an answer
            cursor.execute("SELECT 1")
        stories.locked(pk)

    return actor


@pytest.mark.parametrize("is_mine", [False, True])
def test_actors_may_use_no_other_database_whose_rows_may_be_needed(own: str, settings: Any, is_mine: bool) -> None:
    race = Scenario(set_up=stories.one_seat, actors=[asks_beside(own)] * 2)
    with pytest.raises(NotExplorable, match=r"'own' \(postgres\) is neither a test database"):
        explore(race, database_is_mine=is_mine)
    settings.LOCKSTEP_LAB_DISPOSABLE_DATABASES = [own]
    assert explore(race).verdict == "holds"


def test_a_set_up_may_read_such_a_database_and_not_write_it(own: str) -> None:
    def sent(sql: str) -> Scenario:
        def set_up() -> int:
            with connections[own].cursor() as cursor:
                cursor.execute(sql)
            return stories.one_seat()

        return Scenario(set_up=set_up, actors=[stories.locked] * 2)

    assert explore(sent("SELECT 1")).verdict == "holds"
    with pytest.raises(NotExplorable, match=r"'own' \(postgres\) is neither a test database"):
        explore(sent("CREATE TABLE written (id int)"))
    with connections[own].cursor() as cursor:
        cursor.execute("SELECT to_regclass('written')")
        assert cursor.fetchone() == (None,)


# One at a time


def test_the_second_explorer_is_refused_and_names_the_first(other: Session) -> None:
    other.run(query, "SELECT set_config('application_name', 'the first', false)")
    other.run(query, _CLAIM)
    with pytest.raises(NotExplorable, match=rf"Another .* 'test_.*': server process {other.pid} \(application the fi"):
        explore(LOCKED)


def test_the_database_is_free_again_afterwards() -> None:
    explore(LOCKED)
    explore(LOCKED)
    assert query(CLAIMS) == 0


# How long the explorer's own sessions may stand idle

_LIMITS = ("idle_in_transaction_session_timeout", "idle_session_timeout", "statement_timeout", "transaction_timeout")


def test_they_outlast_whatever_limits_the_project_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = query("SELECT array_agg(name) FROM pg_settings WHERE name = ANY (%s)", list(_LIMITS))
    options = " ".join(f"-c {name}=1min" for name in limits)
    monkeypatch.setitem(
        connection.settings_dict, "OPTIONS", {**connection.settings_dict["OPTIONS"], "options": options}
    )
    session = ControlSession("default")
    try:
        shown = {
            driver.execute(f"SHOW {name}").fetchone()[0]
            for driver in (session.driver, session.snapshot_holder)
            for name in limits
        }
    finally:
        session.close()
    assert shown == {"0"}


# Kept for the next exploration


def _pids(session: ControlSession) -> list[int]:
    return [driver.info.backend_pid for driver in (session.driver, session.snapshot_holder)]


def _is_open(pid: int) -> bool:
    return bool(query("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid))


def test_what_is_kept_comes_back_as_if_it_were_new_and_ends_with_the_block() -> None:
    with kept_sessions():
        session = ControlSession("default")
        pids = _pids(session)
        session.driver.execute("SET search_path = pg_catalog; CREATE TEMP TABLE copied (n int)")
        session.driver.execute("SELECT pg_advisory_lock(4711)")
        session.close()
        assert query(f"SELECT count(*) FROM {ADVISORY_LOCKS} AND objid = 4711") == 0

        session = ControlSession("default")
        further = ControlSession("default")
        assert _pids(session) == pids
        assert not set(_pids(further)) & set(pids)
        assert session.query("SELECT to_regclass('copied')") == [(None,)]
        assert session.query("SELECT to_regclass('shop_seat') IS NOT NULL") == [(True,)]
        pids += _pids(further)
        further.close()
        session.close()
        assert all(map(_is_open, pids))
    until(lambda: not any(map(_is_open, pids)), "the server to end the sessions")


def test_one_that_the_server_has_ended_meanwhile_is_replaced() -> None:
    with kept_sessions():
        session = ControlSession("default")
        (pid, second) = _pids(session)
        session.close()
        query("SELECT pg_terminate_backend(%s, 10000)", pid)

        session = ControlSession("default")
        assert not {pid, second} & set(_pids(session))
        session.close()


@pytest.mark.parametrize("statement", ["BEGIN", "BEGIN; SELECT 1 / 0"])
def test_one_in_the_middle_of_a_transaction_is_not_kept(statement: str) -> None:
    with kept_sessions():
        session = ControlSession("default")
        pids = _pids(session)
        session.driver.pgconn.exec_(statement.encode())
        session.close()
        until(lambda: not any(map(_is_open, pids)), "the server to end the sessions")


def test_one_that_leads_elsewhere_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with kept_sessions():
        session = ControlSession("default")
        pids = _pids(session)
        session.close()
        options = {**connection.settings_dict["OPTIONS"], "application_name": "elsewhere"}
        monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
        session = ControlSession("default")
        assert not set(_pids(session)) & set(pids)
        session.close()


# Putting back


def test_tables_that_could_not_be_put_back_are_named() -> None:
    Seat.objects.create()

    def cut_off(pk: int) -> bool:
        query(f"SELECT pg_terminate_backend(pid) FROM {ADVISORY_LOCKS}")
        return True

    cut = Scenario(set_up=stories.one_seat, actors=[stories.locked] * 2, invariant=cut_off)
    with pytest.raises(ExplorerError, match=r"could not be put back, .*shop_seat \(1 rows before the race\)"):
        explore(cut)
