"""What each unit of the seeded shop does at the same time as itself, or as its counterpart, as scenarios."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

from django.apps import apps
from django.contrib.auth.models import AnonymousUser, User
from django.test import RequestFactory
from django.urls import resolve

from django_lockstep.lab.explorer import Scenario
from tests.testapps import seeded_shop

Actor = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Shop:
    """One of the two apps, by its label."""

    label: str

    @property
    def services(self) -> ModuleType:
        return import_module(f"{seeded_shop.__name__}.{self.label}.services")

    def create(self, model: str, **values: Any) -> Any:
        return apps.get_model(self.label, model)._default_manager.create(**values)

    def request(self, method: str, path: str, data: Any = None, *, json: bool = False, user: User | None = None) -> int:
        """Call the view as the handler does, without middleware, and return the response's status."""
        kind = {"content_type": "application/json"} if json else {}
        request = getattr(RequestFactory(), method.lower())(f"/{self.label}/{path}", data, **kind)
        request.user = user or AnonymousUser()
        match = resolve(request.path, urlconf=f"{seeded_shop.__name__}.urls")
        return int(match.func(request, *match.args, **match.kwargs).status_code)


def _twice(set_up: Callable[[], Any], actor: Actor) -> Scenario:
    return Scenario(set_up=set_up, actors=[actor, actor])


def _customer(name: str = "customer") -> User:
    return User.objects.create(username=name)


def _coupon(shop: Shop) -> Scenario:
    return _twice(
        lambda: shop.create("Coupon", code="SPRING", limit=1),
        lambda coupon: shop.request("POST", "coupons/redeem/", {"code": coupon.code}),
    )


def _checkout(shop: Shop) -> Scenario:
    def order(fixture: Any) -> int:
        data = {"product": fixture.product.pk, "quantity": 2}
        return shop.request("POST", "checkout/", data, json=True, user=fixture.customer)

    return _twice(
        lambda: SimpleNamespace(product=shop.create("Product", name="Kettle", stock=3), customer=_customer()), order
    )


def _wish(shop: Shop) -> Scenario:
    return _twice(_customer, lambda user: shop.request("POST", "wishes/", {"product": "Kettle"}, user=user))


def _booking(shop: Shop) -> Scenario:
    def book(guest: str) -> Actor:
        return lambda show: shop.request("POST", "bookings/", {"show": show.pk, "seat": "A1", "guest": guest})

    return Scenario(set_up=lambda: shop.create("Show", title="Hamlet"), actors=[book("Ada"), book("Grace")])


def _article(shop: Shop) -> Scenario:
    return _twice(
        lambda: shop.create("Article", slug="tea", title="On tea"), lambda _: shop.request("GET", "articles/tea/")
    )


def _expense(shop: Shop) -> Scenario:
    def decide(decision: str) -> Actor:
        return lambda fixture: shop.request(
            "POST", f"expenses/{fixture.expense.pk}/decide/", {"decision": decision}, user=fixture.manager
        )

    return Scenario(
        set_up=lambda: SimpleNamespace(expense=shop.create("Expense", purpose="Train"), manager=_customer("manager")),
        actors=[decide("approve"), decide("reject")],
    )


def _message(shop: Shop) -> Scenario:
    def set_up() -> User:
        sender = _customer()
        for number in range(2):
            shop.create("Message", sender=sender, text=f"Number {number}")
        return sender

    return _twice(set_up, lambda user: shop.request("POST", "messages/", {"text": "And?"}, json=True, user=user))


def _doctors(shop: Shop) -> list[User]:
    doctors = [_customer("house"), _customer("wilson")]
    for doctor in doctors:
        shop.create("Shift", doctor=doctor)
    return doctors


def _leave(shop: Shop, number: int) -> Actor:
    return lambda doctors: shop.request("DELETE", "on-call/", user=doctors[number])


def _on_call(shop: Shop) -> Scenario:
    return Scenario(set_up=lambda: _doctors(shop), actors=[_leave(shop, 0), _leave(shop, 1)])


def _one_doctor_twice(shop: Shop) -> Scenario:
    return _twice(lambda: _doctors(shop), _leave(shop, 0))


def _merge(shop: Shop) -> Scenario:
    def set_up() -> tuple[int, int]:
        guest, customer = shop.create("Basket"), shop.create("Basket")
        guest.lines.create(product="Kettle")
        return guest.pk, customer.pk

    return _twice(set_up, lambda baskets: shop.services.merge_baskets(*baskets))


def _payments(shop: Shop, *references: str) -> Scenario:
    def renew(reference: str) -> Actor:
        return lambda subscription: shop.services.renew(subscription.pk, reference)

    def observe(subscription: Any) -> tuple[date, list[str]]:
        subscription.refresh_from_db()
        return subscription.paid_until, sorted(payment.reference for payment in subscription.payments.all())

    return Scenario(
        set_up=lambda: shop.create("Subscription", customer="Ada", paid_until=date(2026, 3, 1)),
        actors=[renew(reference) for reference in references],
        observe=observe,  # without it, dates are not compared
    )


def _renew(shop: Shop) -> Scenario:
    return _payments(shop, "pay_1", "pay_1")


def _renew_twice(shop: Shop) -> Scenario:
    return _payments(shop, "pay_1", "pay_2")


def _transfer(shop: Shop) -> Scenario:
    def move(source: int, target: int) -> Actor:
        return lambda cards: shop.services.transfer(cards[source], cards[target], 10)

    return Scenario(
        set_up=lambda: [shop.create("LoyaltyCard", number=str(number), points=100).pk for number in range(2)],
        actors=[move(0, 1), move(1, 0)],
    )


def _withdraw(shop: Shop) -> Scenario:
    return _twice(
        lambda: shop.create("Wallet", balance=100), lambda wallet: shop.services.withdraw(wallet.pk, Decimal(60))
    )


SCENARIOS: Mapping[str, tuple[Callable[[Shop], Scenario], ...]] = {
    "POST {shop}/coupons/redeem/": (_coupon,),
    "POST {shop}/checkout/": (_checkout,),
    "POST {shop}/wishes/": (_wish,),
    "POST {shop}/bookings/": (_booking,),
    "GET {shop}/articles/<slug:slug>/": (_article,),
    "POST {shop}/expenses/<int:pk>/decide/": (_expense,),
    "POST {shop}/messages/": (_message,),
    "DELETE {shop}/on-call/": (_on_call, _one_doctor_twice),
    "seeded_shop.{shop}.services.merge_baskets": (_merge,),
    "seeded_shop.{shop}.services.renew": (_renew, _renew_twice),
    "seeded_shop.{shop}.services.transfer": (_transfer,),
    "seeded_shop.{shop}.services.withdraw": (_withdraw,),
}
"""The scenarios in which the unit races, by the unit's name."""
