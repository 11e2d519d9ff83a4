"""The shop's addresses."""

from django.urls import path

from . import views

app_name = "racing"
urlpatterns = [
    path("coupons/redeem/", views.redeem, name="redeem"),
    path("checkout/", views.checkout, name="checkout"),
    path("wishes/", views.AddWish.as_view(), name="wish"),
    path("bookings/", views.BookSeat.as_view(), name="book"),
    path("articles/<slug:slug>/", views.read_article, name="article"),
    path("expenses/<int:pk>/decide/", views.DecideExpense.as_view(), name="decide"),
    path("messages/", views.send_message, name="message"),
    path("on-call/", views.end_shift, name="on-call"),
]
