"""Code that races as real projects write it, and its repair: pairs that tests explore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Sum

from django_lockstep.lab.explorer import Scenario
from tests.testapps.seeded_shop.correct import models as constrained
from tests.testapps.seeded_shop.racing.models import (
    Article,
    Basket,
    Booking,
    Coupon,
    Decision,
    Expense,
    Line,
    LoyaltyCard,
    Message,
    Order,
    Payment,
    Product,
    Shift,
    Show,
    Subscription,
    Wallet,
    WishList,
)

PENDING, APPROVED, REJECTED = "pending", "approved", "rejected"
Race = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Racy code, its repair (the same function with ``safe=True``), and the explanation that is right."""

    actors: tuple[Race, ...]
    set_up: Callable[[], Any]
    invariant: Callable[..., bool]
    kind: str
    step: str
    """The beginning of the statement at which it breaks, in a few words."""
    words: tuple[str, ...]
    """What the sentence says besides."""

    def scenario(self, *, safe: bool) -> Scenario:
        actors = [partial(actor, safe=safe) for actor in self.actors]
        return Scenario(set_up=self.set_up, actors=actors, invariant=self.invariant)


PAIRS: dict[str, Pair] = {}


def pair(
    kind: str, step: str, *words: str, set_up: Callable[[], Any], beside: Race | None = None
) -> Callable[[Callable[..., bool]], Callable[[Race], Race]]:
    def judged_by(invariant: Callable[..., bool]) -> Callable[[Race], Race]:
        def register(race: Race) -> Race:
            actors = (race, beside or race)
            PAIRS[race.__name__] = Pair(
                actors=actors, set_up=set_up, invariant=invariant, kind=kind, step=step, words=words
            )
            return race

        return register

    return judged_by


# One row: read, computed in Python, written


def wallet() -> int:
    return Wallet.objects.create(balance=100).pk


def balance(pk: int) -> int:
    return int(Wallet.objects.get(pk=pk).balance)


@pair("lost update", "UPDATE racing_wallet", "balance 110.00 computed from 100.00", set_up=wallet)(
    lambda pk: balance(pk) == 120
)
@transaction.atomic
def save_of_what_was_read(pk: int, *, safe: bool) -> None:
    row = (Wallet.objects.select_for_update() if safe else Wallet.objects).get(pk=pk)
    row.balance += 10
    row.save()


@pair("stale read under a lock", "UPDATE racing_wallet", "before it locked the row", set_up=wallet)(
    lambda pk: balance(pk) == 120
)
def read_then_lock_then_save(pk: int, *, safe: bool) -> None:
    row = Wallet.objects.get(pk=pk)
    with transaction.atomic():
        locked = Wallet.objects.select_for_update().get(pk=pk)
        row = locked if safe else row
        row.balance += 10
        row.save()


@pair("stale check", "UPDATE racing_wallet", "read balance 100.00", set_up=wallet)(lambda pk: balance(pk) >= 0)
def overdraft(pk: int, *, safe: bool) -> None:
    if safe:
        Wallet.objects.filter(pk=pk, balance__gte=60).update(balance=F("balance") - 60)
    elif Wallet.objects.get(pk=pk).balance >= 60:
        Wallet.objects.filter(pk=pk).update(balance=F("balance") - 60)


@pair("stale read under a lock", "UPDATE racing_wallet", "read balance 100.00", set_up=wallet)(
    lambda pk: balance(pk) >= 0
)
def check_then_read_again(pk: int, *, safe: bool) -> None:
    with transaction.atomic():
        rows = Wallet.objects.select_for_update() if safe else Wallet.objects
        if rows.get(pk=pk).balance >= 60:
            row = Wallet.objects.select_for_update().get(pk=pk)
            row.balance -= 60
            row.save()


@pair("lost update", "UPDATE racing_article", "views 1 computed from 0", set_up=lambda: Article.objects.create().pk)(
    lambda pk: Article.objects.get().views == 2
)
def counter(pk: int, *, safe: bool) -> None:
    views: Any = F("views") if safe else Article.objects.get(pk=pk).views
    Article.objects.filter(pk=pk).update(views=views + 1)


@pair("lost update", "UPDATE racing_coupon", "used 1 computed from 0", set_up=lambda: Coupon.objects.create().pk)(
    lambda pk, results, errors: sorted(results.values()) == [False, True]
)
@transaction.atomic
def coupon_once(pk: int, *, safe: bool) -> bool:
    row = (Coupon.objects.select_for_update() if safe else Coupon.objects).get(pk=pk)
    if row.used >= row.limit:
        return False
    row.used += 1
    row.save()
    return True


def products() -> None:
    Product.objects.bulk_create([Product(name=name, stock=5) for name in "ab"])


@pair("lost update", "UPDATE racing_product", "stock 4 computed from 5", set_up=products)(
    lambda made: all(product.stock == 3 for product in Product.objects.all())
)
@transaction.atomic
def stock_by_loop(made: None, *, safe: bool) -> None:
    for product in (Product.objects.select_for_update() if safe else Product.objects).order_by("pk"):
        product.stock -= 1
        product.save()


@pair("lost update", "UPDATE racing_product", "stock", set_up=products)(
    lambda made: all(product.stock == 3 for product in Product.objects.all())
)
@transaction.atomic
def bulk_update(made: None, *, safe: bool) -> None:
    rows = list((Product.objects.select_for_update() if safe else Product.objects).order_by("pk"))
    for row in rows:
        row.stock -= 1
    Product.objects.bulk_update(rows, ["stock"])


def card() -> int:
    return LoyaltyCard.objects.create(number="old").pk


@pair("lost update", "UPDATE racing_loyaltycard", "number new computed from old", set_up=card)(
    lambda pk, results, errors: sorted(results.values()) == [False, True]
)
def form_with_version(pk: int, *, safe: bool) -> bool:
    if safe:
        return LoyaltyCard.objects.filter(pk=pk, points=0).update(number="new", points=1) == 1
    row = LoyaltyCard.objects.get(pk=pk)
    if row.points != 0:
        return False
    row.number, row.points = "new", row.points + 1
    row.save()
    return True


@pair("lost update", "UPDATE racing_loyaltycard", "number new computed from old", set_up=card)(
    lambda pk: LoyaltyCard.objects.get(pk=pk).points == 1
)
@transaction.atomic
def token_refresh(pk: int, *, safe: bool) -> None:
    rows = LoyaltyCard.objects.select_for_update() if safe else LoyaltyCard.objects
    if rows.get(pk=pk).number == "old":
        LoyaltyCard.objects.filter(pk=pk).update(number="new", points=F("points") + 1)


# Rows looked for, not found, inserted


def show() -> int:
    return Show.objects.create(title="Macbeth").pk


def show_with_a_guest() -> int:
    return Booking.objects.create(show_id=show(), seat="A").show_id


def locked_show(pk: int, safe: bool) -> None:
    if safe:
        Show.objects.select_for_update().get(pk=pk)


@pair("duplicate insert", "INSERT racing_booking", "seat=A1", set_up=show)(lambda pk: Booking.objects.count() == 1)
@transaction.atomic
def check_then_insert(pk: int, *, safe: bool) -> None:
    locked_show(pk, safe)
    if not Booking.objects.filter(show_id=pk, seat="A1").exists():
        Booking.objects.create(show_id=pk, seat="A1")


@pair("duplicate insert", "INSERT racing_wishlist", "owner_id=", set_up=lambda: User.objects.create(username="ada").pk)(
    lambda pk: WishList.objects.count() + constrained.WishList.objects.count() == 1
)
def get_or_create(pk: int, *, safe: bool) -> None:
    (constrained.WishList if safe else WishList).objects.get_or_create(owner_id=pk)


def subscription() -> int:
    return Subscription.objects.create(customer="Ada", paid_until="2030-01-01").pk


@pair("duplicate insert", "INSERT racing_payment", "reference=r1", set_up=subscription)(
    lambda pk: Payment.objects.count() == 1
)
@transaction.atomic
def idempotency_by_lookup(pk: int, *, safe: bool) -> None:
    if safe:
        Subscription.objects.select_for_update().get(pk=pk)
    if Payment.objects.filter(reference="r1").first() is None:
        Payment.objects.create(reference="r1", subscription_id=pk)


@pair("write skew", "INSERT racing_booking", "before the other one's change", set_up=show_with_a_guest)(
    lambda pk: Booking.objects.count() == 3
)
@transaction.atomic
def last_seats(pk: int, *, safe: bool) -> None:
    locked_show(pk, safe)
    for seat in "ABC"[Booking.objects.filter(show_id=pk).count() :]:
        Booking.objects.create(show_id=pk, seat=seat)


def orders() -> tuple[int, int]:
    product = Product.objects.create(name="a", stock=10)
    user = User.objects.create(username="ada")
    Order.objects.create(product=product, customer=user, quantity=6)
    return product.pk, user.pk


@pair("write skew", "INSERT racing_order", "before the other one's change", set_up=orders)(
    lambda made: sum(Order.objects.values_list("quantity", flat=True)) <= 10
)
@transaction.atomic
def sum_against_a_limit(made: tuple[int, int], *, safe: bool) -> None:
    product = (Product.objects.select_for_update() if safe else Product.objects).get(pk=made[0])
    ordered = product.orders.aggregate(total=Sum("quantity"))["total"]
    if ordered + 3 <= product.stock:
        product.orders.create(customer_id=made[1], quantity=3)


@pair("constraint violation", "INSERT racing_article", "racing_article_slug", set_up=lambda: None)(
    lambda made, results, errors: not errors
)
def slug_by_exists(made: None, *, safe: bool) -> None:
    if safe:
        Article.objects.get_or_create(slug="news")
    elif not Article.objects.filter(slug="news").exists():
        Article.objects.create(slug="news")


@pair("constraint violation", "INSERT racing_article", "racing_article_slug", set_up=list)(
    lambda mails: len(mails) == 1
)
def mail_before_commit(mails: list[str], *, safe: bool) -> None:
    with transaction.atomic():
        if not Article.objects.filter(slug="news").exists():
            (transaction.on_commit if safe else lambda send: send())(lambda: mails.append("published"))
            Article.objects.create(slug="news")


def expense() -> int:
    return Expense.objects.create(status=APPROVED).pk


def are_at_most_one_current(made: Any) -> bool:
    return Expense.objects.filter(status=APPROVED).count() == 1


@pair("duplicate insert", "INSERT racing_expense", "status=approved", set_up=show)(are_at_most_one_current)
@transaction.atomic
def first_current(pk: int, *, safe: bool) -> None:
    locked_show(pk, safe)
    Expense.objects.filter(status=APPROVED).update(status=REJECTED)
    Expense.objects.create(status=APPROVED)


@pair("duplicate insert", "INSERT racing_expense", "status=approved", set_up=lambda: (expense(), show())[1])(
    are_at_most_one_current
)
@transaction.atomic
def next_current(pk: int, *, safe: bool) -> None:
    first_current(pk, safe=safe)


@pair("duplicate insert", "INSERT racing_line", "basket_id=", set_up=lambda: Basket.objects.create().pk)(
    lambda pk: Line.objects.count() == 1
)
@transaction.atomic
def replace_all(pk: int, *, safe: bool) -> None:
    if safe:
        Basket.objects.select_for_update().get(pk=pk)
    Line.objects.filter(basket_id=pk).delete()
    Line.objects.create(basket_id=pk, product="tea")


# Rows chosen by a condition, and what became of it


def pending() -> int:
    return Expense.objects.create(status=PENDING).pk


def is_decided_once(pk: int) -> bool:
    return Decision.objects.count() == 1


def boss() -> tuple[int, int]:
    return pending(), User.objects.create(username="ada").pk


@pair("stale check", "UPDATE racing_expense", "by status = pending", set_up=boss)(is_decided_once)
@transaction.atomic
def queue_pop(made: tuple[int, int], *, safe: bool) -> None:
    rows = Expense.objects.select_for_update(skip_locked=True) if safe else Expense.objects
    row = rows.filter(status=PENDING).first()
    if row is not None:
        Expense.objects.filter(pk=row.pk).update(status=APPROVED)
        Decision.objects.create(expense=row, manager_id=made[1], status=APPROVED)


@pair("stale read under a lock", "UPDATE racing_expense", "status pending", set_up=boss)(is_decided_once)
@transaction.atomic
def choose_then_lock(made: tuple[int, int], *, safe: bool) -> None:
    for pk in list(Expense.objects.filter(status=PENDING).values_list("pk", flat=True)):
        row = Expense.objects.select_for_update().get(pk=pk)
        if not safe or row.status == PENDING:
            Expense.objects.filter(pk=pk).update(status=APPROVED)
            Decision.objects.create(expense=row, manager_id=made[1], status=APPROVED)


@pair("stale check", "UPDATE racing_expense", "found no row", set_up=boss)(is_decided_once)
@transaction.atomic
def unread_count(made: tuple[int, int], *, safe: bool) -> None:
    if Expense.objects.get(pk=made[0]).status == PENDING:
        rows = Expense.objects.filter(pk=made[0], status=PENDING).update(status=APPROVED)
        if rows or not safe:
            Decision.objects.create(expense_id=made[0], manager_id=made[1], status=APPROVED)


# Two rows or tables, one rule


def doctors() -> list[int]:
    return [Shift.objects.create(doctor=User.objects.create(username=name)).pk for name in "ab"]


def leave(place: int, pks: list[int], *, safe: bool) -> None:
    with transaction.atomic():
        rows = Shift.objects.select_for_update() if safe else Shift.objects
        if len(rows.filter(on_call=True).order_by("pk")) > 1:
            Shift.objects.filter(pk=pks[place]).update(on_call=False)


@pair("write skew", "UPDATE racing_shift", "on_call", set_up=doctors, beside=partial(leave, 1))(
    lambda pks: Shift.objects.filter(on_call=True).exists()
)
def last_admin_leaves(pks: list[int], *, safe: bool) -> None:
    leave(0, pks, safe=safe)


@transaction.atomic
def add_line(pk: int, *, safe: bool) -> None:
    if (Basket.objects.select_for_update() if safe else Basket.objects).get(pk=pk).status == "open":
        Line.objects.create(basket_id=pk, product="tea")


@pair("write skew", "", "racing_basket", "racing_line", set_up=lambda: Basket.objects.create().pk, beside=add_line)(
    lambda pk: Basket.objects.get().status == "open" or not Line.objects.exists()
)
@transaction.atomic
def close_beside_add(pk: int, *, safe: bool) -> None:
    if safe:
        Basket.objects.select_for_update().get(pk=pk)
    if not Line.objects.filter(basket_id=pk).exists():
        Basket.objects.filter(pk=pk).update(status="merged")


def two_wallets() -> list[int]:
    return [wallet(), wallet()]


def transfer(pks: list[int], *, safe: bool = True) -> None:
    with transaction.atomic():
        for pk in sorted(pks) if safe else pks:
            Wallet.objects.filter(pk=pk).update(balance=F("balance") + (10 if pk == min(pks) else -10))


@pair(
    "deadlock",
    "UPDATE racing_wallet",
    "waited for",
    set_up=two_wallets,
    beside=lambda pks, safe: transfer(pks[::-1], safe=safe),
)(lambda pks, results, errors: not errors)
def rows_in_other_order(pks: list[int], *, safe: bool) -> None:
    transfer(pks, safe=safe)


@pair("read skew", "SELECT racing_wallet", "after B changed both", set_up=two_wallets, beside=transfer)(
    lambda pks, results, errors: results["A"] == 200
)
def total_of_two_reads(pks: list[int], *, safe: bool) -> int:
    if safe:
        return int(Wallet.objects.aggregate(total=Sum("balance"))["total"])
    return sum(map(balance, pks))


def publish(pk: int, *, safe: bool) -> None:
    with transaction.atomic():
        locked_show(pk, safe)
        Message.objects.create(sender=User.objects.get(), text="hello")


@pair(
    "out-of-order commit",
    "SELECT racing_message",
    "lower key",
    set_up=lambda: (User.objects.create(username="ada"), show())[1],
    beside=publish,
)(lambda pk, results, errors: not Message.objects.filter(pk__lt=max(results["A"])).exclude(pk__in=results["A"]))
def outbox(pk: int, *, safe: bool) -> list[int]:
    publish(pk, safe=safe)
    return list(Message.objects.order_by("pk").values_list("pk", flat=True))
