"""The table is made and dropped, and nothing else is touched."""

import signal
import subprocess
import sys
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections

from django_lockstep.lab.anomalies import AnomaliesError, AnomalyReport, find_anomalies, run, select_cases
from django_lockstep.lab.anomalies.access_patterns import STRATEGIES
from django_lockstep.lab.anomalies.scratch_table import Item, scratch_table
from tests.accounts.races.commands import ROOT, environment
from tests.support.factories import AccountFactory
from tests.support.sessions import ADVISORY_LOCKS, Session, query, until

pytestmark = pytest.mark.django_db(transaction=True)

TABLE = Item._meta.db_table


def there() -> bool:
    return bool(query("SELECT to_regclass(%s) IS NOT NULL", TABLE))


def sessions() -> int:
    clients = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    return int(query(f"{clients} AND datname = current_database()"))


def found(*anomalies: str, **columns: Any) -> AnomalyReport:
    return find_anomalies(select_cases(anomalies, **{"levels": (), "strategies": (), **columns}))


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def test_nothing_is_left_behind() -> None:
    before = sessions()
    found("P4", levels=["read committed"])
    assert not there()
    until(lambda: sessions() <= before, "the server to have noticed closed connections")
    assert query(f"SELECT count(*) FROM {ADVISORY_LOCKS}") == 0


def test_no_statement_makes_the_explorer_copy_other_tables() -> None:
    AccountFactory.create()
    before = query("SELECT array_agg((ctid, xmin)::text) FROM accounts_account")
    found("G1a", "PMP", "P4", "G-single", "G2-item", "G2", strategies=list(STRATEGIES), levels=["read uncommitted"])
    # Rows that were put back would be new versions of themselves.
    assert query("SELECT array_agg((ctid, xmin)::text) FROM accounts_account") == before


def test_a_failure_leaves_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        assert there()
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "explore", fail)
    with pytest.raises(KeyboardInterrupt):
        found("P4", levels=["read committed"])
    assert not there()


def test_what_a_killed_process_left_is_taken_over() -> None:
    with scratch_table("default"):
        comment = query("SELECT obj_description(to_regclass(%s), 'pg_class')", TABLE)
    execute(f"CREATE TABLE {TABLE} (other int)")
    execute(f"COMMENT ON TABLE {TABLE} IS '{comment}'")
    assert found("P4", levels=["read committed"]).cells[0].verdict == "possible"
    assert not there()


def test_a_table_that_the_command_has_not_created_is_left_alone() -> None:
    execute(f"CREATE TABLE {TABLE} (theirs int)")
    try:
        with pytest.raises(AnomaliesError, match="this command has not created"), scratch_table("default"):
            pass
        assert there()
    finally:
        execute(f"DROP TABLE {TABLE}")


def test_a_session_that_an_interrupt_left_open_does_not_keep_the_table(
    other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_lockstep.lab.anomalies.scratch_table._PATIENCE", "50ms")
    other.begin()
    with scratch_table("default"):
        other.run(execute, f"SELECT FROM {TABLE}")
    assert not there()


def test_an_interrupt_in_the_middle_of_its_own_command_does_not_keep_it_either(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[Any] = []
    wrapper = type(connections["default"])
    original = wrapper.copy

    def copy(self: Any, alias: str | None = None) -> Any:
        copies.append(original(self, alias))
        return copies[-1]

    monkeypatch.setattr(wrapper, "copy", copy)
    with scratch_table("default"):
        copies[0].connection.pgconn.send_query(b"SELECT 1")  # its answer is never read
    assert not there()


def test_two_do_not_share_the_table(other: Session) -> None:
    with scratch_table("default"), pytest.raises(AnomaliesError, match="Another process"):
        other.run(lambda: scratch_table("default").__enter__())


def test_a_role_that_may_not_make_tables_is_reported() -> None:
    only_here = f"ALTER ROLE CURRENT_USER IN DATABASE {connection.ops.quote_name(query('SELECT current_database()'))}"
    execute(f"{only_here} SET default_transaction_read_only = on")
    try:
        with pytest.raises(AnomaliesError, match="does not allow creating"), scratch_table("default"):
            pass
    finally:
        execute(f"{only_here} RESET default_transaction_read_only")


def test_no_migration_is_made_for_the_table() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.parametrize("name", ["SIGINT"])
def test_ctrl_c_drops_the_table(name: str) -> None:
    before = sessions()
    command = [sys.executable, "manage.py", "anomalies"]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        until(there, "the table")
        process.send_signal(getattr(signal, name))
        _, complaint = process.communicate()
    assert (process.returncode, "Interrupted" in complaint) == (130, True), complaint
    assert not there()
    until(lambda: sessions() <= before, "its connections to be closed")
