"""The shop's pages and its API."""

import json
from datetime import timedelta

from django.contrib.auth.decorators import login_required
from django.contrib.auth.mixins import LoginRequiredMixin
from django.db import transaction
from django.db.models import F
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django.views.generic import FormView

from ..requests import UserRequest
from .forms import BookingForm
from .models import Article, Booking, Coupon, Decision, Expense, Message, Order, Product, Shift, WishList

MESSAGES_PER_HOUR = 3
DECISIONS = {"approve": Expense.Status.APPROVED, "reject": Expense.Status.REJECTED}


def _refuse(error: str, status: int = 409) -> JsonResponse:
    return JsonResponse({"error": error}, status=status)


@require_POST
@transaction.atomic
def redeem(request: HttpRequest) -> HttpResponse:
    coupon = get_object_or_404(Coupon, code=request.POST.get("code"))
    if coupon.used >= coupon.limit:
        return _refuse("This coupon has been used up.")
    Coupon.objects.filter(pk=coupon.pk).update(used=F("used") + 1)
    return JsonResponse({"redeemed": coupon.code})


@login_required
@require_POST
@transaction.atomic
def checkout(request: UserRequest) -> HttpResponse:
    data = json.loads(request.body)
    product = get_object_or_404(Product, pk=data["product"])
    if product.stock < data["quantity"]:
        return _refuse("There are not that many left.")
    product.stock -= data["quantity"]
    product.save()
    Order.objects.create(customer=request.user, product=product, quantity=data["quantity"])
    return JsonResponse({"ordered": data["quantity"]}, status=201)


class AddWish(LoginRequiredMixin, View):
    def post(self, request: UserRequest) -> HttpResponse:
        wish_list, _ = WishList.objects.get_or_create(owner=request.user)
        wish_list.wishes.create(product=request.POST["product"])
        return JsonResponse({"list": wish_list.name})


@method_decorator(transaction.atomic, name="dispatch")
class BookSeat(FormView):  # type: ignore[type-arg]  # Django's own class takes no arguments
    form_class = BookingForm
    http_method_names = ["post"]

    def form_valid(self, form: BookingForm) -> HttpResponse:
        Booking.objects.create(**form.cleaned_data)
        return redirect("/")

    def form_invalid(self, form: BookingForm) -> HttpResponse:
        return JsonResponse(form.errors, status=400)


@require_GET
def read_article(request: HttpRequest, slug: str) -> HttpResponse:
    article = get_object_or_404(Article, slug=slug)
    article.views += 1
    article.save()
    return HttpResponse(article.title)


class DecideExpense(LoginRequiredMixin, View):
    def post(self, request: UserRequest, pk: int) -> HttpResponse:
        status = DECISIONS[request.POST["decision"]]
        with transaction.atomic():
            expense = get_object_or_404(Expense, pk=pk)
            if expense.status != Expense.Status.PENDING:
                return _refuse("This expense has been decided already.")
            expense.status = status
            expense.save()
            Decision.objects.create(expense=expense, manager=request.user, status=status)
        return redirect("/")


@login_required
@require_POST
def send_message(request: UserRequest) -> HttpResponse:
    text = json.loads(request.body)["text"]
    recent = Message.objects.filter(sender=request.user, sent_at__gte=timezone.now() - timedelta(hours=1))
    if recent.count() >= MESSAGES_PER_HOUR:
        return _refuse("Too many messages; try again later.", status=429)
    Message.objects.create(sender=request.user, text=text)
    return JsonResponse({"sent": text}, status=201)


@login_required
@require_http_methods(["DELETE"])
def end_shift(request: UserRequest) -> HttpResponse:
    with transaction.atomic():
        shift = get_object_or_404(Shift, doctor=request.user, on_call=True)
        if Shift.objects.filter(on_call=True).count() < 2:
            return _refuse("Someone has to stay on call.")
        shift.on_call = False
        shift.save()
    return HttpResponse(status=204)
