"""Memory by key that does not grow for ever."""

import pytest

from accounts.bounded_cache import BoundedCache
from accounts.contrib.slotted import spreading
from accounts.contrib.slotted.models import SlottedAccount
from tests.support.factories import UserFactory


def test_what_was_written_longest_ago_is_forgotten_first() -> None:
    memory: BoundedCache[str, int] = BoundedCache(2)
    for key in "abac":
        memory[key] = ord(key)
    assert [memory.get(key, 0) for key in "abc"] == [ord("a"), 0, ord("c")]
    assert len(memory) == 2
    memory.clear()
    assert (len(memory), memory.get("a", 0)) == (0, 0)


@pytest.mark.django_db
def test_sizes_of_slotted_accounts_are_remembered_for_so_many_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "_sizes", BoundedCache(3))
    accounts = [SlottedAccount.open(UserFactory.create(), size=size) for size in (1, 2, 3, 4, 5)]
    for account in accounts:
        assert spreading.size_of(SlottedAccount, account.pk, using="default") == account.size
    assert len(spreading._sizes) == 3


def test_the_memory_of_slotted_accounts_has_a_bound() -> None:
    assert isinstance(spreading._sizes, BoundedCache)
