"""Which session loses a deadlock does not depend on who looks for a cycle first."""

from types import SimpleNamespace

import pytest

from django_lockstep.lab.explorer.driver import wait_monitor
from django_lockstep.lab.explorer.driver.wait_monitor import DeadlockPolicy
from django_lockstep.lab.explorer.effects.operations import Operation

UPDATE = Operation(alias="default", pid=1, sql="UPDATE seat SET price = 1", in_transaction=True)


def test_a_session_that_waits_with_the_short_timeout_looks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(wait_monitor, "time", SimpleNamespace(monotonic=lambda: 1.0, sleep=slept.append))
    policy = DeadlockPolicy()
    policy.timeout_statement(0, UPDATE, waiting={1: frozenset({0})})
    policy.note_wait(0)

    policy.timeout_statement(1, UPDATE, waiting={0: frozenset({1})})

    assert slept[1:] == pytest.approx([0.005])
