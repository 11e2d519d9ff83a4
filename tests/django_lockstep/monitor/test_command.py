"""What the command shows, what it leaves behind, and how it fails."""

import json
import re

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, connections, transaction

from django_lockstep.monitor import LockReport, lock_report, waits
from django_lockstep.monitor.management.commands import lock_report as command
from tests.django_lockstep.monitor.lock_situations import LockSituation, lock, role, run, values_of
from tests.support.sessions import is_as_it_was, query
from tests.testapps.shop.models import Ticket

# What the caller sees, and what is left behind


def test_no_session_waits(db: None) -> None:
    assert waits() == []
    out = run()
    assert out.endswith(f' UTC, database "{connection.settings_dict["NAME"]}": no session waits for a lock.\n')
    assert out.count("\n") == 1


def test_nothing_of_the_look_stays_in_the_callers_transaction(group: Group, situation: LockSituation) -> None:
    situation.hold("a", lock, Group, group.pk)
    situation.wait("b", lock, Group, group.pk)
    with transaction.atomic():
        assert waits()[0].pk == group.pk
        assert is_as_it_was("lock_timeout")
        assert is_as_it_was("statement_timeout")
        held = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'auth_group'::regclass"
        assert query(held) == 0
        assert Group.objects.create(name="still writable").pk
    assert is_as_it_was("lock_timeout")


def test_a_second_look_in_the_same_transaction_sees_what_is_new(group: Group, situation: LockSituation) -> None:
    with transaction.atomic():
        assert waits() == []
        situation.hold("a", lock, Group, group.pk)
        situation.wait("b", lock, Group, group.pk)
        assert waits()[0].waiter.application == "b"


def test_a_role_without_rights_sees_that_a_session_waits(group: Group, situation: LockSituation) -> None:
    holder = situation.hold("a", lock, Group, group.pk)
    situation.wait("b", lock, Group, group.pk)
    with role("pg_signal_backend"):
        report, out = lock_report(), run()
    (wait,) = report.waits
    assert report.limited
    assert (wait.waiter.hidden, wait.waiter.statement, wait.waiter.application) == (True, None, "b")
    assert values_of(wait, "model", "pk_unknown") == ("auth.Group", "this role may not read the table")
    assert [blocker.pid for blocker in wait.blockers] == [holder.pid]
    assert "does not wait; its state is hidden from this role" in out
    assert out.endswith("members of pg_read_all_stats see them.\n")


def test_a_monitor_sees_states_and_statements(group: Group, situation: LockSituation) -> None:
    situation.hold("a", lock, Group, group.pk)
    situation.wait("b", lock, Group, group.pk)
    with role("pg_monitor"):
        report = lock_report()
    assert not report.limited
    assert report.waits[0].blockers[0].state == "idle in transaction"


def test_the_text_begins_with_the_one_to_look_at(group: Group, situation: LockSituation) -> None:
    holder = situation.hold("web-1", lock, Group, group.pk)
    situation.wait("web-2", lock, Group, group.pk)
    situation.wait("web-3", lock, Group, group.pk)
    lines = run().splitlines()
    assert re.search(r'": 2 sessions wait, the longest for \d+\.\d s', lines[0])
    assert lines[2].startswith(f'pid {holder.pid} "web-1" (role ')
    assert lines[2].endswith("): 2 wait behind it")
    assert lines[3].startswith("    LOOK HERE: does not wait and is idle in transaction since ")
    assert lines[5].endswith(f"SELECT pg_terminate_backend({holder.pid});")
    assert lines[6].startswith("    <- pid ")
    assert lines[6].endswith(f"for auth.Group pk={group.pk} (FOR NO KEY UPDATE); 1 waits behind it")
    assert lines[8].startswith("        <- pid ")
    assert max(map(len, lines)) <= 100


def test_json_refers_to_sessions_by_id(situation: LockSituation) -> None:
    ticket = Ticket.objects.create()
    holder = situation.hold("web-1", lock, Ticket, ticket.pk)
    situation.wait("web-2", lock, Ticket, ticket.pk)
    document = json.loads(run(format="json"))
    (wait,) = document["waits"]
    assert (document["schema_version"], document["limited"]) == (1, False)
    assert (wait["model"], wait["pk"]) == ("shop.Ticket", str(ticket.pk))
    assert wait["blockers"] == [str(holder.pid)]
    assert document["sessions"][str(holder.pid)]["state"] == "idle in transaction"
    assert document["sessions"][wait["waiter"]]["application"] == "web-2"
    assert document["roots"] == [{"session": str(holder.pid), "behind": 1}]


def test_watch_looks_again_until_it_is_interrupted(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "sleep", nap)
    documents = [json.loads(line) for line in run(watch=0.5, format="json").splitlines()]
    assert naps == [0.5] * 3
    assert len({document["taken_at"] for document in documents}) == 3


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "nan", "inf"])
def test_an_interval_is_a_time(seconds: str) -> None:
    with pytest.raises(CommandError, match="--watch"):
        call_command("lock_report", "--watch", seconds)


def test_another_database_is_wrong_usage(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "sqlite")
    for alias, said in (("default", "'default' is not PostgreSQL"), ("nowhere", "nowhere")):
        with pytest.raises(CommandError, match=said) as caught:
            run(database=alias)
        assert caught.value.returncode == 2


def test_a_database_that_does_not_answer_is_reported_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(using: str) -> LockReport:
        raise OperationalError("too many clients already")

    monkeypatch.setattr(command, "lock_report", unreachable)
    with pytest.raises(CommandError, match="'default' does not answer: too many clients") as caught:
        run()
    assert caught.value.returncode == 1
