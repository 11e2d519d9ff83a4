"""The public API as code of a user's project writes it; it is never run, only checked by mypy in strict mode."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import assert_type

from django.contrib.auth.models import User
from django.db import migrations, models
from django.db import transaction as db_transaction

from accounts.batches import AppliedChange, BalanceChange
from accounts.contrib.dynamodb import DynamoAccount, chain_breaks
from accounts.errors import IdempotencyKeyReused, InsufficientFunds, InvalidAmount
from accounts.models import AbstractAccount, AbstractEntry, Account, Entry
from accounts.operations import AppendOnly
from accounts.strategies import STRATEGIES, Strategy
from django_lockstep.editing import (
    AddEditGuard,
    EditLockedModel,
    EditLockLost,
    EditResult,
    check_in,
    check_out,
    extend,
    require_editable,
    status_of,
    take_over,
    writing,
)
from django_lockstep.leases import FencedModel, Holder, LeaseHandle, exclusive, guard, lease
from django_lockstep.leases.models import Lease
from django_lockstep.locking import (
    AddVersionGuard,
    ConcurrencyError,
    LockNotAvailable,
    Merge,
    RetriesExhausted,
    StaleVersionError,
    VersionedManager,
    VersionedModel,
    VersionedQuerySet,
    VersionField,
    ignore_versions,
    isolated_transaction,
    lock_row,
    lock_rows,
    merge_fields,
    retry_on_conflict,
    retrying,
    translated_errors,
    verify_unchanged,
)
from django_lockstep.stores import Delete, DynamoStore, Outcome, Put, Update


class Seat(VersionedModel):
    guest = models.CharField(max_length=50)

    class Meta:
        app_label = "house"


class SeatQuerySet(VersionedQuerySet["Box"]):
    def free(self) -> SeatQuerySet:
        return self.filter(guest="")


class Box(VersionedModel):
    version = VersionField(db_column="revision")
    guest = models.CharField(max_length=50)

    objects = VersionedManager.from_queryset(SeatQuerySet)()

    class Meta:
        app_label = "house"


class Wallet(AbstractAccount):
    currency = models.CharField(max_length=3)

    class Meta(AbstractAccount.Meta):
        app_label = "house"


class WalletEntry(AbstractEntry):
    account = models.ForeignKey(Wallet, on_delete=models.PROTECT, related_name="entries")

    class Meta(AbstractEntry.Meta):
        app_label = "house"


class Migration(migrations.Migration):
    operations = [AddVersionGuard("Seat"), AppendOnly("WalletEntry")]


def rows() -> None:
    assert_type(lock_row(Seat, 1), Seat)
    assert_type(lock_row(Seat.objects, "1", timeout=timedelta(seconds=2)), Seat)
    assert_type(lock_row(Seat.objects.filter(guest=""), 1, nowait=True, of=["self"], using="default"), Seat)
    assert_type(lock_row(Seat(), timeout=2), Seat)
    assert_type(lock_rows(Seat, [1, 2], skip_locked=True, no_key=False), list[Seat])
    assert_type(lock_rows(Account, {1, 2}, timeout=0.5), list[Account])


def by_key() -> None:
    seats: list[Seat] = Seat.objects.lock_many([1, 2], of=("self",), timeout=2)
    seats.append(Seat.objects.lock(1, no_key=False))
    free: list[Seat] = Seat.objects.filter(guest="").lock_many([seats[0].pk], skip_locked=True)
    assert_type(free[0], Seat)
    assert_type(Seat.objects.update_if_unchanged(1, 3, guest="Ada"), int | None)
    assert_type(Seat.objects.put_if_unchanged(1, 0, guest="Ada"), int | None)
    Seat.objects.update_many_if_unchanged([(1, 3, {"guest": "Ada"}), (2, 1, {"guest": "Bob"})])
    assert_type(Seat.objects.get(pk=1), Seat)
    assert_type(Box.objects.create(guest="Ada"), Box)


def by_instance(seat: Seat) -> None:
    assert_type(seat.version, int)
    assert_type(seat.save(update_fields=["guest"]), None)
    assert_type(seat.save(force_write=True), None)
    with ignore_versions(Seat, Box):
        verify_unchanged(seat, Box(), using="default")
    assert_type(seat.delete(), tuple[int, dict[str, int]])
    assert_type(seat.update_if_unchanged(guest="Ada"), bool)
    merge = seat.merge_if_disjoint()
    assert_type(merge, Merge)
    assert_type(merge.disjoint, bool)
    assert_type([conflict.theirs for conflict in merge.conflicts.values()] == [], bool)
    assert_type(merge_fields({"guest": ""}, {"guest": "Ada"}, {}, version=2).version, int)


async def asynchronously(seat: Seat) -> None:
    assert_type(await seat.aupdate_if_unchanged(guest="Ada"), bool)
    assert_type(await Seat.objects.aupdate_if_unchanged(1, 3, guest="Ada"), int | None)
    assert_type(await Seat.objects.aput_if_unchanged(1, 0, guest="Ada"), int | None)
    assert_type(await seat.amerge_if_disjoint(), Merge)
    assert_type(await again_later("A1"), Seat)
    await seat.asave(force_write=True)


@retry_on_conflict
def again(pk: int, *, guest: str = "") -> Seat:
    with isolated_transaction(isolation_level="serializable"):
        return Seat.objects.get(pk=pk)


@retry_on_conflict(attempts=3, wait_initial=0.1, wait_max=timedelta(seconds=1), timeout=5, on=StaleVersionError)
def again_in_time(pk: int, *, guest: str = "") -> Seat:
    return again(pk, guest=guest)


@retry_on_conflict(on=(LockNotAvailable, StaleVersionError), using="default")
async def again_later(code: str) -> Seat:
    return await Seat.objects.aget(pk=code)


class Desk:
    @retry_on_conflict
    def book(self, pk: int) -> bool:
        for attempt in retry_on_conflict(attempts=2):
            with attempt, isolated_transaction(read_only=True, deferrable=True, using="default"):
                return True
        return False


def retries() -> None:
    assert_type(again(1, guest="Ada"), Seat)
    assert_type(again_in_time(1, guest="Ada"), Seat)
    assert_type(Desk().book(1), bool)
    again("A1")  # type: ignore[arg-type]
    again_in_time(1, gest="Ada")  # type: ignore[call-arg]
    retry_on_conflict(atempts=3)  # type: ignore[call-overload]
    retrying.connect(lambda **data: None)


def errors() -> None:
    try:
        with translated_errors(model=Seat, pk=1), isolated_transaction(isolation_level="snapshot"):  # type: ignore[arg-type]
            again(1)
    except StaleVersionError as stale:
        assert_type((stale.expected, stale.actual), tuple[int | None, int | None])
    except RetriesExhausted as exhausted:
        assert_type((exhausted.attempts, exhausted.elapsed), tuple[int, float])
    except ConcurrencyError as error:
        assert_type((error.model, error.sqlstate), tuple[type[models.Model] | None, str | None])


def accounts(account: Account) -> None:
    assert_type(Account.deposit(1, "12.50", idempotency_key="k", nowait=True), Account)
    assert_type(Account.withdraw(1, Decimal(5), timeout=timedelta(seconds=1), using="default"), Account)
    assert_type(Account.transfer(1, 2, 5), tuple[Account, Account])
    assert_type(Account.apply_many([(1, "2.50"), BalanceChange(2, -3, idempotency_key="k")]), list[AppliedChange])
    assert_type(Account.apply_many([])[0].balance_after, Decimal)
    assert_type(account.try_deposit(5, idempotency_key="k"), bool)
    assert_type(account.try_withdraw(5), bool)
    assert_type(account.balance_after(Decimal(-5)), Decimal)
    assert_type(Entry.objects.get().account, Account)
    balances: list[Decimal] = [account.balance, account.overdraft_limit]
    assert_type(sum(balances, Decimal(0)), Decimal)


def own_accounts() -> None:
    assert_type(Wallet.deposit(1, 5), Wallet)
    assert_type(Wallet.transfer(1, 2, 5)[0].currency, str)
    assert_type(Wallet.entry_model(), type[AbstractEntry])
    assert_type(lock_row(Wallet, 1), Wallet)


def refusals() -> None:
    try:
        Account.withdraw(1, 5)
    except InsufficientFunds as error:
        assert_type((error.balance, error.overdraft_limit, error.amount), tuple[Decimal, Decimal, Decimal])
    except InvalidAmount as error:
        assert_type((error.value, error.rule), tuple[object, str])
    except IdempotencyKeyReused as error:
        assert_type((error.idempotency_key, error.recorded), tuple[str, Decimal])


def strategies() -> None:
    strategy = STRATEGIES["optimistic"].bound(model=Wallet, using="default")
    assert_type(strategy, Strategy)
    assert_type(strategy.deposit(1, 5), AbstractAccount)
    assert_type((strategy.name, strategy.safe), tuple[str, bool])


class Result(FencedModel):
    text = models.CharField(max_length=50)

    class Meta:
        app_label = "house"


@exclusive("bill-{pk}", ttl=timedelta(minutes=5), skip=True, heartbeat=True)
def bill(pk: int) -> str:
    with lease("k", 60, wait=1.5, at_least=30, data={"a": 1}, on_lost=lambda handle: handle.release()) as handle:
        assert_type(handle, LeaseHandle)
        handle.refresh(ttl=timedelta(seconds=90))
        assert_type((handle.remaining, handle.token, handle.release()), tuple[float, int, bool])
        handle.guard()
    return "billed"


@exclusive("bill-{pk}", ttl=60)
async def bill_later(pk: int) -> str:
    async with lease("k", 60, using="default") as handle:
        await handle.arefresh()
    return "billed"


def leases(result: Result) -> None:
    assert_type(Lease.objects.acquire("k", 60, wait=timedelta(seconds=2)), LeaseHandle | None)
    assert_type(Lease.objects.holder("k"), Holder | None)
    assert_type(Lease.objects.purge(timedelta(days=30)), int)
    assert_type(bill(7), str | None)
    assert_type(result.update_if_token(7, text="a"), bool)
    bill("7")  # type: ignore[arg-type]
    guard("k", 7)


def stores() -> None:
    store = DynamoStore.named("dynamodb")
    assert_type(store.put_if_absent("i", {"money": Decimal(1)}), int | None)
    assert_type(store.delete_if_unchanged("i", version=1), bool)
    with lease("k", 60, store="dynamodb") as handle:
        outcome = store.transact([Put("i", {}), Update("j", {"a": [1]}, 2), Delete("k", 1)], guards=[handle])
        assert_type(outcome, Outcome)
    item = store.read("i")
    if item is not None:
        assert_type(item.version, int)


def accounts_of_stores() -> None:
    account = assert_type(DynamoAccount.deposit("ada", 1, idempotency_key="k", store="dynamodb"), DynamoAccount)
    assert_type(DynamoAccount.transfer("ada", "bob", "1.50"), tuple[DynamoAccount, DynamoAccount])
    assert_type(account.try_withdraw(Decimal(1)), bool)
    assert_type([entry.amount for entry in account.entries()], list[Decimal])
    assert_type([str(gap) for gap in chain_breaks()], list[str])
    DynamoAccount.deposit(7, 1)  # type: ignore[arg-type]


async def leases_later() -> None:
    assert_type(await Lease.objects.aacquire("k", 60), LeaseHandle | None)
    assert_type(await bill_later(7), str | None)


class Note(EditLockedModel, VersionedModel):
    text = models.TextField()


def edit(note: Note, user: User) -> str | None:
    result = assert_type(check_out(note, user, ttl=timedelta(minutes=5), depth=None), EditResult)
    if not result.lock_result:
        return ", ".join(f"{hold.editor} since {hold.since}" for hold in result.must_end)
    try:
        with writing(user, token=result.token or ""), db_transaction.atomic():
            require_editable(Note, [note.pk])
            note.save()
        assert_type(extend(Note, user, token=result.token), EditResult)
        assert_type(check_in(note, user, token=result.token), EditResult)
    except EditLockLost as lost:
        return f"{lost.how} by {lost.by} at {lost.at}"
    assert_type(take_over(note, user), EditResult)
    assert_type(check_out(note, user, related=["app.Author"]), EditResult)
    return status_of("app.Note").holder


edit_guards = [AddEditGuard("Note")]
