"""A wait goes on where its connection was ended, or the server was away."""

import asyncio
from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import OperationalError, connection

from django_lockstep.leases import LeaseHandle, LeaseTimedOut
from django_lockstep.leases.database import DatabaseLeases, on_own_connection
from django_lockstep.leases.models import Lease
from django_lockstep.leases.stores import store_on
from tests.django_lockstep.leases.holding import wait_as_processes
from tests.django_lockstep.leases.test_waiting import hold, queued
from tests.support.sessions import Session, query, until

pytestmark = pytest.mark.django_db(transaction=True)

ENDED = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)"


def end(pid: int) -> None:
    """Have the server end a session, and wait until it is gone."""
    query("SELECT pg_terminate_backend(%s)", pid)
    until(lambda: query(ENDED, pid), "the session's end")


def acquire_and_release() -> bool:
    handle = Lease.objects.acquire("k", 60, wait=20)
    return handle is not None and handle.release()


def test_all_who_queue_get_it_although_their_sessions_were_ended(
    open_session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_as_processes(monkeypatch)
    release = hold()
    waiters, answers = [open_session(), open_session()], []
    for number, waiter in enumerate(waiters, start=1):
        answers.append(waiter.start(acquire_and_release))
        until(lambda expected=number: queued() == expected, "the waiter")  # type: ignore[misc]
    for waiter in waiters:
        end(waiter.pid)
    until(lambda: queued() == 2, "both to queue again")
    release()
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
        with connection.cursor() as cursor:
            cursor.execute("DO $$ BEGIN RAISE SQLSTATE '57014'; END $$")

    with pytest.raises(LeaseTimedOut):
        on_own_connection(fail)(store_on())
    assert len(calls) == 1
