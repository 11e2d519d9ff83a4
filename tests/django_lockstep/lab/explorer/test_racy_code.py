"""Code that races as real projects write it is broken and explained, and its repair holds.

Each pair is one function, repaired where ``safe``; the decorator says what the explanation of the racy code has to be.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import F, Sum

from django_lockstep.lab.explorer import Scenario, explore, timeline
from django_lockstep.lab.explorer.render.explanations import find_explanation
from django_lockstep.lab.explorer.render.summaries import describe_step
from tests.testapps.seeded_shop.correct.models import WishList
from tests.testapps.seeded_shop.racing import models as shop
from tests.testapps.shop.models import BoxSeat, Seat, StampedSeat

pytestmark = pytest.mark.django_db(transaction=True)

Race = Callable[..., Any]


class Pair(NamedTuple):
    """Racy code with its repair, and the explanation that is right."""

    actors: tuple[Race, ...]
    holds: Callable[..., Any] | None
    kind: str
    step: str
    """The beginning of the statement at which it breaks, in a few words."""
    words: str
    """What the sentence says besides."""

    def scenario(self, *, safe: bool) -> Scenario:
        actors = [partial(actor, safe=safe) for actor in self.actors]
        return Scenario(set_up=rows_of_a_shop, actors=actors, invariant=self.holds)


PAIRS: dict[str, Pair] = {}


def pair(kind: str, step: str, words: str, holds: Race | None, *, beside: Race | None = None) -> Callable[[Race], Race]:
    def register(race: Race) -> Race:
        PAIRS[race.__name__] = Pair((race, beside or race), holds, kind, step, words)
        return race

    return register


def rows_of_a_shop() -> SimpleNamespace:
    """Make a row of each kind, and return the keys."""
    ada, bob = (user.pk for user in User.objects.bulk_create(User(username=name) for name in ("ada", "bob")))
    show = shop.Show.objects.create().pk
    product, _ = (row.pk for row in shop.Product.objects.bulk_create(shop.Product(stock=10) for _ in range(2)))
    shop.Order.objects.create(product_id=product, customer_id=ada, quantity=6)
    booking = shop.Booking.objects.create(show_id=show, seat="A").pk
    return SimpleNamespace(
        user=ada,
        shifts=[shop.Shift.objects.create(doctor_id=user).pk for user in (ada, bob)],
        wallets=[shop.Wallet.objects.create(balance=100).pk for _ in range(2)],
        basket=shop.Basket.objects.create().pk,
        expense=shop.Expense.objects.create().pk,
        seat=BoxSeat.objects.create().pk,
        session=Session.objects.create(
            session_key="k", session_data=Session.objects.encode({}), expire_date=datetime(2100, 1, 1, tzinfo=UTC)
        ).pk,
        show=show,
        stamped=StampedSeat.objects.create().pk,
        booking=booking,
        product=product,
        mails=[],
    )


def read(model: Any, pk: int, lock: bool) -> Any:
    return (model.objects.select_for_update() if lock else model.objects).get(pk=pk)


def balance(rows: Any) -> int:
    return int(shop.Wallet.objects.get(pk=rows.wallets[0]).balance)


def one_wins(rows: Any, results: Any, errors: Any) -> bool:
    return sorted(results.values()) == [False, True]


def no_error(rows: Any, results: Any, errors: Any) -> bool:
    return not errors


# One row: read, computed in Python, written


@pair("lost update", "UPDATE racing_wallet", "balance 110.00 computed from 100.00", lambda rows: balance(rows) == 120)
@transaction.atomic
def save_of_what_was_read(rows: Any, *, safe: bool) -> None:
    row = read(shop.Wallet, rows.wallets[0], lock=safe)
    row.balance += 10
    row.save()


@pair("stale read under a lock", "UPDATE racing_wallet", "before it locked the row", lambda rows: balance(rows) == 120)
def read_then_lock_then_save(rows: Any, *, safe: bool) -> None:
    row = read(shop.Wallet, rows.wallets[0], lock=False)
    with transaction.atomic():
        locked = read(shop.Wallet, rows.wallets[0], lock=True)
        row = locked if safe else row
        row.balance += 10
        row.save()


@pair("stale check", "UPDATE racing_wallet", "read balance 100.00", lambda rows: balance(rows) >= 0)
def overdraft(rows: Any, *, safe: bool) -> None:
    covered = {"balance__gte": 60} if safe else {}
    if safe or balance(rows) >= 60:
        shop.Wallet.objects.filter(pk=rows.wallets[0], **covered).update(balance=F("balance") - 60)


def one_is_told(rows: Any) -> bool:
    return shop.Message.objects.count() == 1


@pair("stale check", "UPDATE racing_shift", "read on_call True", one_is_told)
@transaction.atomic
def flag_that_was_read(rows: Any, *, safe: bool) -> None:
    shift = read(shop.Shift, rows.shifts[0], lock=safe)
    if shift.on_call:
        shift.on_call = False
        shift.save()
        shop.Message.objects.create(sender_id=rows.user, text="relieved")


@pair("stale check", "UPDATE shop_stampedseat", "read booked_at NULL", one_wins)
@transaction.atomic
def time_that_was_not_set(rows: Any, *, safe: bool) -> bool:
    if read(StampedSeat, rows.stamped, lock=safe).booked_at is not None:
        return False
    StampedSeat.objects.filter(pk=rows.stamped).update(booked_at=datetime(2020, 1, 1, tzinfo=UTC))
    return True


def tell_and_delete(rows: Any, *, safe: bool) -> Any:
    shop.Message.objects.create(sender_id=rows.user, text="cancelled")
    return row_deleted_twice(rows, safe=safe)


# The default oracle: the answers, too, are those of a serial order.
@pair("stale check", "DELETE racing_booking", "when B's DELETE found no row", None, beside=tell_and_delete)
@transaction.atomic
def row_deleted_twice(rows: Any, *, safe: bool) -> bool:
    bookings = shop.Booking.objects.select_for_update() if safe else shop.Booking.objects
    booking = bookings.filter(pk=rows.booking).first()
    if booking is None:
        return False
    booking.delete()
    return True


def delete_booking(rows: Any, *, safe: bool) -> None:
    shop.Booking.objects.filter(pk=rows.booking).delete()


def is_deleted(rows: Any) -> bool:
    return not shop.Booking.objects.exists()


@pair("stale check", "UPDATE racing_booking", "B had deleted it", is_deleted, beside=delete_booking)
@transaction.atomic
def row_saved_after_its_deletion(rows: Any, *, safe: bool) -> None:
    bookings = shop.Booking.objects.select_for_update() if safe else shop.Booking.objects
    if (booking := bookings.filter(pk=rows.booking).first()) is not None:
        booking.seat = "B"
        booking.save()


def two_are_sold(rows: Any) -> bool:
    return {product.stock for product in shop.Product.objects.all()} == {8}


@pair("lost update", "UPDATE racing_product", "stock 9 computed from 10", two_are_sold)
@transaction.atomic
def bulk_update(rows: Any, *, safe: bool) -> None:
    products = list((shop.Product.objects.select_for_update() if safe else shop.Product.objects.all()).order_by("pk"))
    for product in products:
        product.stock -= 1
    shop.Product.objects.bulk_update(products, ["stock"])


# Rows looked for, not found, inserted


@pair("duplicate insert", "INSERT racing_booking", "seat=B1", lambda rows: shop.Booking.objects.count() == 2)
@transaction.atomic
def check_then_insert(rows: Any, *, safe: bool) -> None:
    read(shop.Show, rows.show, lock=safe)
    if not shop.Booking.objects.filter(show_id=rows.show, seat="B1").exists():
        shop.Booking.objects.create(show_id=rows.show, seat="B1")


@pair("duplicate insert", "INSERT racing_wishlist", "owner_id=", lambda rows: shop.WishList.objects.count() < 2)
def get_or_create(rows: Any, *, safe: bool) -> None:
    (WishList if safe else shop.WishList).objects.get_or_create(owner_id=rows.user)


@pair("write skew", "INSERT racing_booking", "each read racing_booking", lambda rows: shop.Booking.objects.count() == 3)
@transaction.atomic
def last_seats(rows: Any, *, safe: bool) -> None:
    read(shop.Show, rows.show, lock=safe)
    for seat in "ABC"[shop.Booking.objects.filter(show_id=rows.show).count() :]:
        shop.Booking.objects.create(show_id=rows.show, seat=seat)


@pair("write skew", "INSERT racing_order", "each read racing_order", lambda rows: shop.Order.objects.count() == 2)
@transaction.atomic
def sum_against_a_limit(rows: Any, *, safe: bool) -> None:
    product = read(shop.Product, rows.product, lock=safe)
    if product.orders.aggregate(total=Sum("quantity"))["total"] + 3 <= product.stock:
        product.orders.create(customer_id=rows.user, quantity=3)


@pair("constraint violation", "INSERT racing_article", "racing_article_slug", no_error)
def slug_by_exists(rows: Any, *, safe: bool) -> None:
    if safe:
        shop.Article.objects.get_or_create(slug="news")
    elif not shop.Article.objects.filter(slug="news").exists():
        shop.Article.objects.create(slug="news")


@pair("constraint violation", "INSERT racing_article", "racing_article_slug", lambda rows: len(rows.mails) == 1)
@transaction.atomic
def mail_before_commit(rows: Any, *, safe: bool) -> None:
    if not shop.Article.objects.filter(slug="news").exists():
        (transaction.on_commit if safe else lambda send: send())(lambda: rows.mails.append("published"))
        shop.Article.objects.create(slug="news")


def is_one_current(rows: Any, status: str = "approved") -> bool:
    return shop.Expense.objects.filter(status=status).count() == 1


@pair("duplicate insert", "INSERT racing_expense", "status=approved, found none", is_one_current)
@transaction.atomic
def first_current(rows: Any, *, safe: bool, status: str = "approved") -> None:
    read(shop.Show, rows.show, lock=safe)
    shop.Expense.objects.filter(status=status).update(status="rejected")
    shop.Expense.objects.create(status=status)


@pair("duplicate insert", "INSERT racing_expense", "did not see", lambda rows: is_one_current(rows, "pending"))
def next_current(rows: Any, *, safe: bool) -> None:
    first_current(rows, safe=safe, status="pending")


# Rows chosen by a condition, and what became of it


def decide(rows: Any) -> None:
    shop.Decision.objects.create(expense_id=rows.expense, manager_id=rows.user, status="approved")


def is_decided_once(rows: Any) -> bool:
    return shop.Decision.objects.count() == 1


@pair("stale check", "UPDATE racing_expense", "by status = pending", is_decided_once)
@transaction.atomic
def queue_pop(rows: Any, *, safe: bool) -> None:
    expenses = shop.Expense.objects.select_for_update(skip_locked=True) if safe else shop.Expense.objects
    if (row := expenses.filter(status="pending").first()) is not None:
        shop.Expense.objects.filter(pk=row.pk).update(status="approved")
        decide(rows)


@pair("stale read under a lock", "UPDATE racing_expense", "read status pending", is_decided_once)
@transaction.atomic
def choose_then_lock(rows: Any, *, safe: bool) -> None:
    for pk in list(shop.Expense.objects.filter(status="pending").values_list("pk", flat=True)):
        if read(shop.Expense, pk, lock=True).status == "pending" or not safe:
            shop.Expense.objects.filter(pk=pk).update(status="approved")
            decide(rows)


@pair("stale check", "UPDATE racing_expense", "found no row", is_decided_once)
@transaction.atomic
def unread_count(rows: Any, *, safe: bool) -> None:
    if read(shop.Expense, rows.expense, lock=False).status == "pending":
        claimed = shop.Expense.objects.filter(pk=rows.expense, status="pending").update(status="approved")
        if claimed or not safe:
            decide(rows)


@pair("stale check", "UPDATE shop_seat", "by guest = ''", one_wins)
def seat_in_two_tables(rows: Any, *, safe: bool) -> bool:
    return (Seat if safe else BoxSeat).objects.filter(pk=rows.seat, guest="").update(guest="Ada") == 1


# Two rows or tables, one rule


@transaction.atomic
def leave(rows: Any, *, safe: bool, place: int = 1) -> None:
    shifts = shop.Shift.objects.select_for_update() if safe else shop.Shift.objects
    if len(shifts.filter(on_call=True).order_by("pk")) > 1:
        shop.Shift.objects.filter(pk=rows.shifts[place]).update(on_call=False)


@pair("write skew", "UPDATE racing_shift", "False", lambda rows: shop.Shift.objects.filter(on_call=True), beside=leave)
def last_admin_leaves(rows: Any, *, safe: bool) -> None:
    leave(rows, safe=safe, place=0)


@transaction.atomic
def add_line(rows: Any, *, safe: bool) -> None:
    if read(shop.Basket, rows.basket, lock=safe).status == "open":
        shop.Line.objects.create(basket_id=rows.basket, product="tea")


def is_open_or_empty(rows: Any) -> bool:
    return shop.Basket.objects.get().status == "open" or not shop.Line.objects.exists()


@pair("write skew", "INSERT racing_line", "read racing_line and racing_basket", is_open_or_empty, beside=add_line)
@transaction.atomic
def close_beside_add(rows: Any, *, safe: bool) -> None:
    read(shop.Basket, rows.basket, lock=safe)
    if not shop.Line.objects.filter(basket_id=rows.basket).exists():
        shop.Basket.objects.filter(pk=rows.basket).update(status="merged")


@transaction.atomic
def transfer(rows: Any, *, safe: bool, source: int = 1) -> None:
    for place in (0, 1) if safe else (source, 1 - source):
        change = -10 if place == source else 10
        shop.Wallet.objects.filter(pk=rows.wallets[place]).update(balance=F("balance") + change)


@pair("deadlock", "UPDATE racing_wallet", "waited for", no_error, beside=transfer)
def rows_in_other_order(rows: Any, *, safe: bool) -> None:
    transfer(rows, safe=safe, source=0)


def total_is_right(rows: Any, results: Any, errors: Any) -> bool:
    return bool(results["A"] == 200)


@pair("read skew", "SELECT racing_wallet", "after B changed both", total_is_right, beside=transfer)
def total_of_two_reads(rows: Any, *, safe: bool) -> Any:
    if safe:
        return shop.Wallet.objects.aggregate(total=Sum("balance"))["total"]
    return sum(read(shop.Wallet, pk, lock=False).balance for pk in reversed(rows.wallets))


def set_balances(rows: Any, *, safe: bool, to: int = 1) -> None:
    with transaction.atomic() if safe else nullcontext():
        for wallet in rows.wallets:
            shop.Wallet.objects.filter(pk=wallet).update(balance=to)


def balances_are_equal(rows: Any) -> bool:
    return len({wallet.balance for wallet in shop.Wallet.objects.all()}) == 1


@pair("atomicity violation", "UPDATE racing_wallet", "in two transactions", balances_are_equal, beside=set_balances)
def rows_written_one_by_one(rows: Any, *, safe: bool) -> None:
    set_balances(rows, safe=safe, to=2)


def equal_balances_were_read(rows: Any, results: Any, errors: Any) -> bool:
    return len(set(results["A"])) == 1


@pair("atomicity violation", "SELECT racing_wallet", "read both", equal_balances_were_read, beside=set_balances)
def rows_read_while_they_are_written(rows: Any, *, safe: bool) -> list[Any]:
    return list(shop.Wallet.objects.order_by("pk").values_list("balance", flat=True))


@pair("lost update", "UPDATE django_session", "session_data", None)
def session_says_whether_it_was_done(rows: Any, *, safe: bool) -> None:
    """The session is written by itself, as its middleware does."""
    with transaction.atomic() if safe else nullcontext():
        session = read(Session, rows.session, lock=safe)
        if session.get_decoded().get("order"):
            return
        order = shop.Order.objects.create(product_id=rows.product, customer_id=rows.user, quantity=1)
        shop.Order.objects.filter(customer_id=rows.user).count()
        session.session_data = Session.objects.encode({"order": order.pk})
        session.save()


@transaction.atomic
def publish(rows: Any, *, safe: bool) -> None:
    read(shop.Show, rows.show, lock=safe)
    shop.Message.objects.create(sender_id=rows.user, text="hello")


def none_is_missed(rows: Any, results: Any, errors: Any) -> bool:
    return not shop.Message.objects.filter(pk__lt=max(results["A"])).exclude(pk__in=results["A"]).exists()


@pair("out-of-order commit", "SELECT racing_message", "the lower key", none_is_missed, beside=publish)
def outbox(rows: Any, *, safe: bool) -> list[int]:
    publish(rows, safe=safe)
    return list(shop.Message.objects.order_by("pk").values_list("pk", flat=True))


@pytest.mark.parametrize("name", PAIRS)
def test_racy_code_is_broken_and_the_sentence_names_the_cause_and_the_statement(name: str) -> None:
    exploration = explore(PAIRS[name].scenario(safe=False), stop_on_first=True)

    assert exploration.failure is not None
    explanation = find_explanation(exploration.failure)
    assert explanation.kind == PAIRS[name].kind
    assert PAIRS[name].words in explanation.text
    assert explanation.step is not None
    assert describe_step(explanation.step).startswith(PAIRS[name].step)
    assert "To prevent it: " in timeline(exploration.failure)


@pytest.mark.parametrize("name", PAIRS)
def test_repaired_code_holds(name: str) -> None:
    exploration = explore(PAIRS[name].scenario(safe=True))

    assert exploration.verdict == "holds", exploration.reason
