"""A box office as projects write it: views and functions that tests call."""

import json
import threading
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from tests.testapps.shop.models import PlainSeat


def raise_price(pk: int, amount: Decimal) -> None:
    """Read, compute, write."""
    seat = PlainSeat.objects.get(pk=pk)
    PlainSeat.objects.filter(pk=seat.pk).update(price=seat.price + amount)


def raise_passed(seat: PlainSeat, others: list[Any], *, by: Decimal) -> None:
    """Compute from what the caller has read, before the first statement is sent."""
    seat.price += by
    PlainSeat.objects.filter(pk=seat.pk).update(price=seat.price)


def save(self: PlainSeat, **options: Any) -> None:
    """Save as a model's own method does."""
    Model.save(self, **options)


def rename(seat: PlainSeat, guest: str) -> None:
    """Save by that method, where it is the model's."""
    seat.guest = guest
    seat.save()


@transaction.atomic
def raise_price_locked(pk: int, amount: Decimal) -> None:
    """Do the same under a lock."""
    seat = PlainSeat.objects.select_for_update(no_key=True).get(pk=pk)
    with transaction.atomic():
        PlainSeat.objects.filter(pk=pk).update(price=seat.price + amount)


def raise_all(amount: Decimal) -> None:
    """Raise each price in a transaction of its own."""
    for pk in PlainSeat.objects.values_list("pk", flat=True):
        raise_price_locked(pk, amount)


def raise_elsewhere(pk: int, amount: Decimal) -> None:
    """Raise it in another thread, on another connection."""

    def raise_there() -> None:
        raise_price(pk, amount)
        connection.close()

    thread = threading.Thread(target=raise_there)
    thread.start()
    thread.join()


def raise_by_request(request: HttpRequest, pk: int) -> HttpResponse:
    """Raise by what the form says."""
    if "as" in request.POST and not request.user.is_authenticated:
        return HttpResponseForbidden()
    raise_price(pk, Decimal(request.POST["amount"]))
    return HttpResponse("raised")


@csrf_exempt
def rename_guest(request: HttpRequest, pk: int) -> JsonResponse:
    """Write what the JSON says."""
    data: dict[str, Any] = json.loads(request.body)
    return JsonResponse({"renamed": PlainSeat.objects.filter(pk=pk).update(guest=data["guest"]["name"])})


def show(request: HttpRequest, pk: int) -> HttpResponse:
    """Only read."""
    return HttpResponse(PlainSeat.objects.get(pk=pk).guest)


urlpatterns = [
    path("seats/<int:pk>/", show),
    path("seats/<int:pk>/raise/", raise_by_request),
    path("seats/<int:pk>/guest/", rename_guest),
]
