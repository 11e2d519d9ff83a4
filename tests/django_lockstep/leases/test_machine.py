"""Several holders in every order that chance finds: never two, tokens rise, old tokens write nothing."""

from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from django_lockstep.leases import LeaseHandle, LeaseLost
from django_lockstep.leases.models import Lease
from django_lockstep.leases.testing import expire, steal
from tests.support.sessions import Session
from tests.testapps.press.models import Note

HOLDERS = st.integers(0, 2)


class Leases(RuleBasedStateMachine):
    """Three sessions and one key; the model knows whose token stands and whether it may still be used."""

    def __init__(self) -> None:
        super().__init__()
        Lease.objects.all().delete()
        Note.objects.all().delete()
        self.sessions = [Session() for _ in range(3)]
        self.handles: dict[int, LeaseHandle] = {}
        self.paused: set[int] = set()
        self.tokens: list[int] = []
        self.current: int | None = None
        """The token that stands in the row and was not released; expired or not."""
        self.expired = True

    def teardown(self) -> None:
        for session in self.sessions:
            session.close()

    def granted(self, handle: LeaseHandle) -> None:
        assert handle.token > max(self.tokens, default=0)
        self.tokens.append(handle.token)
        self.current, self.expired = handle.token, False

    @rule(who=HOLDERS)
    def acquire(self, who: int) -> None:
        handle = self.sessions[who].run(Lease.objects.acquire, "k", 600)
        assert (handle is not None) == (self.current is None or self.expired)
        if handle is not None:
            self.handles[who] = handle
            self.granted(handle)

    @rule(who=HOLDERS)
    def refresh(self, who: int) -> None:
        if who in self.handles and who not in self.paused:
            handle = self.handles[who]
            holds = handle.token == self.current
            try:
                self.sessions[who].run(handle.refresh)
            except LeaseLost:
                assert not holds
            else:
                assert holds
                self.expired = False

    @rule(who=HOLDERS)
    def release(self, who: int) -> None:
        if who in self.handles and who not in self.paused:
            handle = self.handles[who]
            assert self.sessions[who].run(handle.release) is (handle.token == self.current)
            if handle.token == self.current:
                self.current = None

    @rule(who=HOLDERS)
    def pause_or_go_on(self, who: int) -> None:
        self.paused ^= {who}

    @rule(who=HOLDERS)
    def die(self, who: int) -> None:
        self.handles.pop(who, None)

    @rule()
    def time_passes(self) -> None:
        expire("k")
        self.expired = True

    @rule(who=HOLDERS)
    def be_robbed(self, who: int) -> None:
        self.handles[who] = self.sessions[who].run(steal, "k", 600)
        self.granted(self.handles[who])

    @precondition(lambda self: self.current is not None and not self.expired)
    @rule()
    def be_released_by_force(self) -> None:
        Lease.objects.filter(key="k").force_release()
        self.current = None

    @precondition(lambda self: self.current is None or self.expired)
    @rule()
    def be_purged(self) -> None:
        Lease.objects.purge(1e-6)
        self.current = None

    @rule(who=HOLDERS)
    def write_under_guard(self, who: int) -> None:
        """Write, also as one that was paused and is not: it has to find out by itself."""
        if who in self.handles:
            token = self.handles[who].token
            try:
                self.sessions[who].run(write, self.handles[who])
            except LeaseLost:
                assert token != self.current
            else:
                assert token == self.current

    @invariant()
    def tokens_of_writes_never_fall(self) -> None:
        written = list(Note.objects.order_by("pk").values_list("token", flat=True))
        assert written == sorted(written)

    @invariant()
    def there_is_one_holder_at_most(self) -> None:
        holder = Lease.objects.holder("k")
        assert (holder is not None) == (self.current is not None and not self.expired)
        assert holder is None or holder.token == self.current


def write(handle: Any) -> None:
    with transaction.atomic():
        Note.objects.create(token=handle.token)
        handle.guard()


@pytest.mark.django_db(transaction=True)
def test_holders_in_every_order() -> None:
    chosen = settings(
        max_examples=20,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    run_state_machine_as_test(Leases, settings=chosen)
