"""What the shop does outside of its pages."""

from datetime import date
from decimal import Decimal
from types import ModuleType

import pytest

pytestmark = pytest.mark.django_db


def test_baskets_are_merged(services: ModuleType) -> None:
    guest, customer = services.Basket.objects.create(), services.Basket.objects.create()
    guest.lines.create(product="Kettle", quantity=2)
    customer.lines.create(product="Teapot")
    services.merge_baskets(guest.pk, customer.pk)
    assert list(customer.lines.order_by("pk").values_list("product", "quantity")) == [("Teapot", 1), ("Kettle", 2)]
    assert not guest.lines.exists()


def test_a_basket_is_merged_once(services: ModuleType) -> None:
    guest, customer = services.Basket.objects.create(), services.Basket.objects.create()
    guest.lines.create(product="Kettle")
    for _ in range(2):
        services.merge_baskets(guest.pk, customer.pk)
    assert customer.lines.count() == 1


def test_a_payment_extends_the_subscription(services: ModuleType) -> None:
    subscription = services.Subscription.objects.create(customer="Ada", paid_until=date(2026, 3, 1))
    assert services.renew(subscription.pk, "pay_1")
    subscription.refresh_from_db()
    assert subscription.paid_until == date(2026, 3, 31)


def test_a_payment_is_told_twice(services: ModuleType) -> None:
    subscription = services.Subscription.objects.create(customer="Ada", paid_until=date(2026, 3, 1))
    assert [services.renew(subscription.pk, "pay_1") for _ in range(2)] == [True, False]
    subscription.refresh_from_db()
    assert (subscription.paid_until, subscription.payments.count()) == (date(2026, 3, 31), 1)


def test_points_go_from_card_to_card(services: ModuleType) -> None:
    first = services.LoyaltyCard.objects.create(number="1", points=100)
    second = services.LoyaltyCard.objects.create(number="2", points=100)
    services.transfer(first.pk, second.pk, 30)
    services.transfer(second.pk, first.pk, 10)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.points, second.points) == (80, 120)


def test_points_that_are_not_there(services: ModuleType) -> None:
    first = services.LoyaltyCard.objects.create(number="1", points=10)
    second = services.LoyaltyCard.objects.create(number="2")
    with pytest.raises(services.NotEnough):
        services.transfer(first.pk, second.pk, 30)


def test_money_is_withdrawn(services: ModuleType) -> None:
    wallet = services.Wallet.objects.create(balance=100)
    services.withdraw(wallet.pk, Decimal(60))
    wallet.refresh_from_db()
    assert wallet.balance == 40
    with pytest.raises(services.NotEnough):
        services.withdraw(wallet.pk, Decimal(60))
