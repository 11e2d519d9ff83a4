"""The statements: PostgreSQL's own SQL, and the conditional UPDATEs for all others.

What the verbs promise on every store is in ``tests/django_lockstep/stores/test_lease_verbs.py``.
"""

import asyncio
from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import NotSupportedError, OperationalError, connection, transaction

from django_lockstep.leases import LeaseHandle, LeaseTimedOut
from django_lockstep.leases.database import DatabaseLeases, on_own_connection
from django_lockstep.leases.models import Lease
from django_lockstep.leases.portable import PortableLeases
from django_lockstep.leases.postgresql import PostgresLeases
from django_lockstep.leases.stores import store_on
from django_lockstep.leases.testing import expire
from django_lockstep.stores.terms import Grant, claim
from tests.django_lockstep.leases.holding import acquired, wait_as_processes
from tests.django_lockstep.leases.test_waiting import queued
from tests.support.sessions import Gate, Session, gated, query, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[PostgresLeases, PortableLeases])
def store(request: pytest.FixtureRequest) -> DatabaseLeases:
    leases: DatabaseLeases = request.param("default")
    return leases


def acquire(store: DatabaseLeases) -> Grant:
    answer = store.take(claim("k", 60))
    assert isinstance(answer, Grant)
    return answer


@pytest.mark.parametrize("existing", [False, True], ids=["new key", "old key"])
def test_of_two_at_once_one_gets_it(store: DatabaseLeases, other: Session, existing: bool) -> None:
    if existing:
        acquire(store)
        expire("k")
    gate = Gate("UPDATE" if existing else "INSERT")
    slow = other.start(gated, gate, lambda: store.take(claim("k", 60)))
    if isinstance(store, PortableLeases):
        gate.wait_until_reached()
    fast = store.take(claim("k", 60))
    gate.open()
    assert [isinstance(answer, Grant) for answer in (fast, slow.result(20))].count(True) == 1


def test_a_claim_that_stood_still_gets_a_token_that_nobody_had(other: Session) -> None:
    store = PortableLeases("default")
    gate = Gate("INSERT")
    slow = other.start(gated, gate, lambda: acquire(store))
    gate.wait_until_reached()
    earlier = acquire(store)
    assert store.take(claim("other key", 60))
    expire("k")
    assert Lease.objects.filter(key="k").delete()
    gate.open()

    assert slow.result(20).token > earlier.token
    assert Lease.objects.get(key="k").token == slow.result(20).token


def test_a_guard_that_cannot_be_says_so() -> None:
    with transaction.atomic(), pytest.raises(NotSupportedError, match=r"cannot keep lease 'k' .* update_if_token"):
        PortableLeases("default").guard("k", 1)


def test_where_there_is_no_queue_waiters_look_again(monkeypatch: pytest.MonkeyPatch, other: Session) -> None:
    monkeypatch.setattr(PostgresLeases, "_turn", DatabaseLeases._turn)
    handle = acquired()
    waiting = other.start(Lease.objects.acquire, "k", 60, wait=20)
    handle.release()
    assert waiting.result(20) is not None


# A wait goes on where its connection was ended, or the server was away


ENDED = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)"


def end(pid: int) -> None:
    """Have the server end a session, and wait until it is gone."""
    query("SELECT pg_terminate_backend(%s)", pid)
    until(lambda: query(ENDED, pid), "the session's end")


def test_all_who_queue_get_it_although_their_sessions_were_ended(
    handle: LeaseHandle, open_session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_as_processes(monkeypatch)
    waiters, answers = [open_session(), open_session()], []
    for number, waiter in enumerate(waiters, start=1):
        answers.append(waiter.start(lambda: acquired(wait=20).release()))
        until(lambda expected=number: queued() == expected, "the waiter")  # type: ignore[misc]
    for waiter in waiters:
        end(waiter.pid)
    until(lambda: queued() == 2, "both to queue again")
    handle.release()
    assert [answer.result(20) for answer in answers] == [True, True]


def test_async_waiters_do_too() -> None:
    def pid() -> int:
        return int(query("SELECT pg_backend_pid()"))

    async def story() -> LeaseHandle | None:
        handle = await Lease.objects.aacquire("k", 60)
        waiting = asyncio.create_task(Lease.objects.aacquire("k", 60, wait=20))
        ended = await sync_to_async(pid)()
        await sync_to_async(_end_from_elsewhere)(ended)
        assert handle is not None
        assert await handle.arelease()
        return await waiting

    assert async_to_sync(story)() is not None


def _end_from_elsewhere(pid: int) -> None:
    with Session() as session:
        session.run(end, pid)


def test_who_does_not_wait_is_told_that_there_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.close()
    tries: list[object] = []

    def refuse(params: object) -> None:
        tries.append(params)
        raise OperationalError("no server")

    monkeypatch.setattr(connection, "get_new_connection", refuse)
    with pytest.raises(OperationalError, match="no server"):
        Lease.objects.acquire("k", 60)
    assert len(tries) == 2
    with pytest.raises(OperationalError, match="no server"):
        Lease.objects.acquire("k", 60, wait=0.05)
    assert len(tries) > 4


def test_an_error_on_a_connection_that_lives_is_raised_at_once() -> None:
    calls: list[object] = []

    def fail(store: DatabaseLeases) -> None:
        calls.append(store)
        query("DO $$ BEGIN RAISE SQLSTATE '57014'; END $$")

    with pytest.raises(LeaseTimedOut):
        on_own_connection(fail)(store_on())
    assert len(calls) == 1
