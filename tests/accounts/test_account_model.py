"""Any sequence of operations leaves what a few lines of plain Python say it should."""

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from accounts.errors import IdempotencyKeyReused, InsufficientFunds
from accounts.models import Account, Entry
from accounts.reconciliation import chain_breaks
from tests.support.factories import AccountFactory

cents = st.integers(1, 50_000).map(lambda n: Decimal(n) / 100)
operations = st.lists(
    st.tuples(
        st.sampled_from(["deposit", "withdraw", "try_deposit", "try_withdraw"]),
        cents,
        st.one_of(st.none(), st.sampled_from("abc")),
        st.booleans(),
    ),
    max_size=12,
)


class PlainAccount:
    """An account as arithmetic: no database, no concurrency."""

    def __init__(self, balance: Decimal, limit: Decimal) -> None:
        self.balance, self.limit, self.version = balance, limit, 1
        self.keys: dict[str, Decimal] = {}
        self.amounts: list[Decimal] = []

    def change(self, amount: Decimal, key: str | None) -> None:
        if key in self.keys:
            if self.keys[key] != amount:
                raise IdempotencyKeyReused("reused")
            return
        if amount < 0 and self.balance + amount < -self.limit:
            raise InsufficientFunds("too little")
        self.balance += amount
        self.version += 1
        self.amounts.append(amount)
        if key:
            self.keys[key] = amount


def attempt(account: Account, plain: PlainAccount, name: str, amount: Decimal, key: str | None, stale: bool) -> None:
    """Do one operation on both, and expect of both the same refusal; a stale instance must change nothing."""
    signed = -amount if "withdraw" in name else amount
    refusal: type[Exception] | None = None
    try:
        if name.startswith("try_"):
            seen = Account.objects.get(pk=account.pk)
            if stale:
                Account.deposit(account.pk, 1)
                plain.change(Decimal(1), None)
            if not getattr(seen, name)(amount, idempotency_key=key):
                assert stale
                return
        else:
            getattr(Account, name)(account.pk, amount, idempotency_key=key)
    except (InsufficientFunds, IdempotencyKeyReused) as error:
        refusal = type(error)
    try:
        plain.change(signed, key)
    except (InsufficientFunds, IdempotencyKeyReused) as error:
        assert type(error) is refusal
    else:
        assert refusal is None


class AgainstAPlainModel(TestCase):
    """Balance, version and ledger agree with the plain account after every sequence."""

    @settings(max_examples=60, deadline=None)
    @given(operations, cents, cents)
    def test_any_sequence(
        self, steps: list[tuple[str, Decimal, str | None, bool]], opening: Decimal, limit: Decimal
    ) -> None:
        account = AccountFactory.create(balance=opening, overdraft_limit=limit)
        plain = PlainAccount(opening, limit)
        for name, amount, key, stale in steps:
            attempt(account, plain, name, amount, key, stale)
        account.refresh_from_db()
        assert (account.balance, account.version) == (plain.balance, plain.version)
        assert list(Entry.objects.values_list("amount", flat=True)) == plain.amounts
        assert not list(chain_breaks(Account))
