"""The shop's pages and its API."""

import json
from datetime import timedelta

from django.contrib.auth.decorators import login_required
from django.contrib.auth.mixins import LoginRequiredMixin
from django.db import IntegrityError, OperationalError, connection, transaction
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
LOCK_MESSAGES = 4711
SERIALIZATION_FAILURE = "40001"


def _refuse(error: str, status: int = 409) -> JsonResponse:
    return JsonResponse({"error": error}, status=status)


@require_POST
@transaction.atomic
def redeem(request: HttpRequest) -> HttpResponse:
    coupon = get_object_or_404(Coupon, code=request.POST.get("code"))
    # The condition is checked on the row that the UPDATE has locked.
    if not Coupon.objects.filter(pk=coupon.pk, used__lt=F("limit")).update(used=F("used") + 1):
        return _refuse("This coupon has been used up.")
    return JsonResponse({"redeemed": coupon.code})


@login_required
@require_POST
@transaction.atomic
def checkout(request: UserRequest) -> HttpResponse:
    data = json.loads(request.body)
    product = get_object_or_404(Product.objects.select_for_update(), pk=data["product"])
    if product.stock < data["quantity"]:
        return _refuse("There are not that many left.")
    product.stock -= data["quantity"]
    product.save()
    Order.objects.create(customer=request.user, product=product, quantity=data["quantity"])
    return JsonResponse({"ordered": data["quantity"]}, status=201)


class AddWish(LoginRequiredMixin, View):
    def post(self, request: UserRequest) -> HttpResponse:
        # ON CONFLICT DO NOTHING: the owner is unique.
        WishList.objects.bulk_create([WishList(owner=request.user)], ignore_conflicts=True)
        wish_list = WishList.objects.get(owner=request.user)
        wish_list.wishes.create(product=request.POST["product"])
        return JsonResponse({"list": wish_list.name})


@method_decorator(transaction.atomic, name="dispatch")
class BookSeat(FormView):  # type: ignore[type-arg]  # Django's own class takes no arguments
    form_class = BookingForm
    http_method_names = ["post"]

    def form_valid(self, form: BookingForm) -> HttpResponse:
        try:
            with transaction.atomic():
                Booking.objects.create(**form.cleaned_data)
        except IntegrityError:  # someone else has booked the seat since it was checked
            form.add_error(None, "This seat is taken.")
            return self.form_invalid(form)
        return redirect("/")

    def form_invalid(self, form: BookingForm) -> HttpResponse:
        return JsonResponse(form.errors, status=400)


@require_GET
def read_article(request: HttpRequest, slug: str) -> HttpResponse:
    article = get_object_or_404(Article, slug=slug)
    Article.objects.filter(pk=article.pk).update(views=F("views") + 1)
    return HttpResponse(article.title)


class DecideExpense(LoginRequiredMixin, View):
    def post(self, request: UserRequest, pk: int) -> HttpResponse:
        status = DECISIONS[request.POST["decision"]]
        with transaction.atomic():
            expense = get_object_or_404(Expense, pk=pk)
            if expense.status != Expense.Status.PENDING:
                return _refuse("This expense has been decided already.")
            unchanged = Expense.objects.filter(pk=pk, version=expense.version)
            if not unchanged.update(status=status, version=expense.version + 1):
                return _refuse("This expense has been decided already.")
            Decision.objects.create(expense=expense, manager=request.user, status=status)
        return redirect("/")


def _lock_messages_of(user_id: int) -> None:
    """Let one request of the user at a time count and insert, until its transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LOCK_MESSAGES, user_id])


@login_required
@require_POST
def send_message(request: UserRequest) -> HttpResponse:
    text = json.loads(request.body)["text"]
    with transaction.atomic():
        _lock_messages_of(request.user.pk)
        recent = Message.objects.filter(sender=request.user, sent_at__gte=timezone.now() - timedelta(hours=1))
        if recent.count() >= MESSAGES_PER_HOUR:
            return _refuse("Too many messages; try again later.", status=429)
        Message.objects.create(sender=request.user, text=text)
    return JsonResponse({"sent": text}, status=201)


@login_required
@require_http_methods(["DELETE"])
def end_shift(request: UserRequest) -> HttpResponse:
    for _ in range(5):
        try:
            return _end_shift(request)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != SERIALIZATION_FAILURE:
                raise
    return _refuse("Too many changes at once; try again later.", status=503)


def _end_shift(request: UserRequest) -> HttpResponse:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        shift = get_object_or_404(Shift, doctor=request.user, on_call=True)
        if Shift.objects.filter(on_call=True).count() < 2:
            return _refuse("Someone has to stay on call.")
        shift.on_call = False
        shift.save()
    return HttpResponse(status=204)
