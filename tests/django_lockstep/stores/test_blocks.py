"""``lease``, ``exclusive`` and the commands on both stores."""

import json
from collections.abc import Callable
from io import StringIO

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from pytest_django import Settings

from django_lockstep.leases import LeaseHandle, LeaseLost, LeaseNotAcquired, assert_held, exclusive, lease
from django_lockstep.leases.testing import steal
from django_lockstep.stores.protocol import LeaseStore
from tests.django_lockstep.stores.test_lease_verbs import holder_in
from tests.support.sessions import until


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, store="tested", stdout=out)
    return out.getvalue()


def test_a_block_holds_and_releases(store: LeaseStore) -> None:
    with lease("k", 60, store="tested", data={"job": 1}) as handle:
        held = holder_in(store)
        assert (held.token, held.data) == (handle.token, {"job": 1})
        assert 30 < handle.remaining <= 60
        assert assert_held("k") is handle
        handle.note({"job": 2})
        assert handle.data == {"job": 2}
        with pytest.raises(LeaseNotAcquired, match="has been held by") as refusal, lease("k", 60, store="tested"):
            pass
        assert refusal.value.holder is not None
        assert refusal.value.holder.data == {"job": 2}
    assert store.get("k") is None


def test_async_blocks_do_too(store: LeaseStore) -> None:
    async def story() -> None:
        async with lease("k", 60, store="tested") as handle:
            await handle.arefresh()
            with pytest.raises(LeaseNotAcquired):
                async with lease("k", 60, store="tested", wait=0.05):
                    pass
        async with lease("k", 60, store="tested", wait=5):
            pass

    async_to_sync(story)()
    assert store.get("k") is None


def test_a_held_function_is_skipped(store: LeaseStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="lockstep.leases")

    @exclusive("k", 60, store="tested", skip=True)
    def job() -> bool:
        return True

    with lease("k", 60, store="tested"):
        assert job() is None
    assert "Skipped: Lease 'k' has been held by" in caplog.text
    assert job() is True


def test_a_stolen_lease_is_lost(store: LeaseStore, expire: Callable[[str], None]) -> None:
    lost: list[LeaseHandle] = []
    with lease("k", 60, store="tested", on_lost=lost.append) as handle:
        expire("k")
        with lease("k", 60, store="tested"):
            for use in (handle.refresh, lambda: handle.note(2)):
                with pytest.raises(LeaseLost, match="another holder took it"):
                    use()
            assert lost == [handle]
            assert not handle.release()
            assert store.get("k") is not None


def test_tests_can_steal(store: LeaseStore) -> None:
    with lease("k", 60, store="tested") as handle:
        thief = steal("k", store="tested", data=[1])
        assert (thief.owner, thief.data) == ("another holder", [1])
        assert thief.token > handle.token
        with pytest.raises(LeaseLost):
            handle.refresh()
    assert thief.release()


def test_a_heartbeat_renews(store: LeaseStore) -> None:
    with lease("k", 1.5, store="tested", heartbeat=True) as handle:
        begun = handle._deadline
        until(lambda: handle._deadline > begun + 1.5, "heartbeats beyond the ttl")
        handle.check()


def test_a_database_and_a_store_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="not using='default' and store='tested'"):
        lease("k", 60, using="default", store="tested")


def test_an_unknown_store_is_named(settings: Settings) -> None:
    settings.LOCKSTEP_STORES = {}
    with (
        pytest.raises(ImproperlyConfigured, match="no store 'nowhere'; there are postgresql"),
        lease("k", 60, store="nowhere"),
    ):
        pass


def test_the_commands(store: LeaseStore) -> None:
    with lease("k", 60, store="tested", owner="ada", data=[1]) as handle:
        (listed,) = json.loads(run("leases", "--format", "json"))
        assert (listed["key"], listed["owner"], listed["token"]) == ("k", "ada", handle.token)
        assert (listed["state"], listed["data"]) == ("held", [1])
        assert 30 < listed["remaining"] <= 60
        with pytest.raises(CommandError, match=r"held by ada .* Add --yes") as refusal:
            run("leases", "--release", "k")
        assert refusal.value.returncode == 2
        handle.refresh()
        assert "it was held by ada" in run("leases", "--release", "k", "--yes")
        with pytest.raises(LeaseLost):
            handle.refresh()
    with pytest.raises(CommandError, match="is not held"):
        run("leases", "--release", "k", "--yes")


def test_run_exclusive(store: LeaseStore) -> None:
    with pytest.raises(SystemExit) as ended:
        run("run_exclusive", "k", "--ttl", "60", "--", "sh", "-c", "exit 7")
    assert ended.value.code == 7
    with lease("k", 60, store="tested"), pytest.raises(CommandError, match="has been held by") as refusal:
        run("run_exclusive", "k", "--ttl", "60", "--", "true")
    assert refusal.value.returncode == 75
