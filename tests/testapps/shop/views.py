"""Views that book a seat, and their URLs."""

from collections.abc import Iterator

from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import path

from tests.testapps.shop.models import Seat


def book(request: HttpRequest, pk: int) -> HttpResponse:
    """Look, then write: two guests may both get the seat."""
    return take(Seat.objects.get(pk=pk), request.POST.get("guest", "nobody"))


def book_locked(request: HttpRequest, pk: int) -> HttpResponse:
    """The same with the row locked."""
    with transaction.atomic():
        return take(Seat.objects.select_for_update().get(pk=pk), request.POST.get("guest", "nobody"))


def take(seat: Seat, guest: str) -> HttpResponse:
    if seat.guest:
        return HttpResponse(f"taken by {seat.guest}", status=409)
    Seat.objects.filter(pk=seat.pk).update(guest=guest)
    return HttpResponse("booked", status=201)


async def abook(request: HttpRequest, pk: int) -> HttpResponse:
    """The same as `book`, asynchronously: by the methods that await, and by ``async for``."""
    async for seat in Seat.objects.filter(pk=pk, guest=""):
        await Seat.objects.filter(pk=seat.pk).aupdate(guest=request.POST.get("guest", "nobody"))
        return HttpResponse("booked", status=201)
    return HttpResponse("taken", status=409)


def book_or_raise(request: HttpRequest, pk: int) -> HttpResponse:
    """Answer a seat that is taken with an error of the view."""
    answer = book_locked(request, pk)
    if answer.status_code == 409:
        raise LookupError(answer.content.decode())
    Seat.objects.filter(pk=pk).exists()  # so that another request may fail while this one is not done
    return answer


def book_as_user(request: HttpRequest, pk: int) -> HttpResponse:
    """Book for the user who is logged in, and leave a cookie."""
    with transaction.atomic():
        answer = take(Seat.objects.select_for_update().get(pk=pk), str(request.user))
    answer.set_cookie("booked", str(pk))
    return answer


def describe(request: HttpRequest, pk: int) -> HttpResponseBase:
    """Change the seat, then stream a row at a time."""
    Seat.objects.filter(pk=pk).update(row="B")

    def rows() -> Iterator[str]:
        yield from Seat.objects.filter(pk=pk).values_list("row", flat=True)

    return StreamingHttpResponse(rows())


urlpatterns = [
    path("<int:pk>/book/", book),
    path("<int:pk>/book-asynchronously/", abook),
    path("<int:pk>/book-locked/", book_locked),
    path("<int:pk>/book-or-raise/", book_or_raise),
    path("<int:pk>/book-as-user/", book_as_user),
    path("<int:pk>/describe/", describe),
]
