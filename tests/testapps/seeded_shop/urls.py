"""Both shops side by side, at the same addresses."""

from types import ModuleType
from typing import Any

from django.urls import include, path

from .correct import views as correct
from .racing import views as racing


def addresses(views: ModuleType, name: str) -> Any:
    """Return the addresses of one shop."""
    return include(
        (
            [
                path("coupons/redeem/", views.redeem, name="redeem"),
                path("checkout/", views.checkout, name="checkout"),
                path("wishes/", views.AddWish.as_view(), name="wish"),
                path("bookings/", views.BookSeat.as_view(), name="book"),
                path("articles/<slug:slug>/", views.read_article, name="article"),
                path("expenses/<int:pk>/decide/", views.DecideExpense.as_view(), name="decide"),
                path("messages/", views.send_message, name="message"),
                path("on-call/", views.end_shift, name="on-call"),
            ],
            name,
        )
    )


urlpatterns = [path("racing/", addresses(racing, "racing")), path("correct/", addresses(correct, "correct"))]
