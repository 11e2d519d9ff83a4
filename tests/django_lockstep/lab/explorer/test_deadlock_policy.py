"""Which session loses a deadlock is set before a step that may close a cycle, and only before such a step."""

from types import SimpleNamespace

import pytest

from django_lockstep.lab.explorer.driver import wait_monitor
from django_lockstep.lab.explorer.driver.wait_monitor import DeadlockPolicy
from django_lockstep.lab.explorer.effects.operations import Operation

ONE_WAITS_FOR_THE_FIRST = {1: frozenset({0})}
LOSES = "SET LOCAL deadlock_timeout = '1ms'"


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits until another session has looked for a cycle; the clock stands still."""
    waits: list[float] = []
    monkeypatch.setattr(wait_monitor, "time", SimpleNamespace(monotonic=lambda: 1.0, sleep=waits.append))
    return waits


def timeout_before(sql: str, policy: DeadlockPolicy, *, chosen: int = 0) -> str | None:
    operation = Operation(alias="default", pid=1, sql=sql, in_transaction=True)
    return policy.timeout_statement(chosen, operation, waiting=ONE_WAITS_FOR_THE_FIRST)


@pytest.mark.parametrize("sql", ["UPDATE seat SET price = 1", "INSERT INTO seat VALUES (1)", "COMMIT"])
def test_who_is_waited_for_loses_if_its_step_closes_a_cycle(sql: str) -> None:
    assert timeout_before(sql, DeadlockPolicy()) == LOSES


@pytest.mark.parametrize("sql", ["ROLLBACK", 'ROLLBACK TO SAVEPOINT "s1"'])
def test_a_rollback_waits_for_nobody(slept: list[float], sql: str) -> None:
    assert timeout_before(sql, DeadlockPolicy()) is None
    assert slept == []


def test_a_session_that_waits_with_the_short_timeout_looks_first(slept: list[float]) -> None:
    policy = DeadlockPolicy()
    timeout_before("UPDATE seat SET price = 1", policy, chosen=0)
    policy.note_wait(0)
    slept.clear()

    policy.timeout_statement(
        1,
        Operation(alias="default", pid=2, sql="UPDATE seat SET price = 2", in_transaction=True),
        waiting={0: frozenset({1})},
    )

    assert slept == pytest.approx([0.005])
