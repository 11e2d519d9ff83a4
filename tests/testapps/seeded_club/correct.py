"""The club's pages, none of which has a race."""

import json
from functools import partial
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db import connection, transaction
from django.db.models import F, Sum
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404

from . import models as club
from .forms import MemberForm
from .tasks import print_report

MOST_GUESTS = 30
# A response for each request: middleware writes headers and cookies into it.
TAKEN, DONE, MADE = (partial(HttpResponse, status=status) for status in (409, 200, 201))
Answer = HttpResponse


def book(request: HttpRequest, pk: int) -> Answer:
    """Two guests are told that one seat is theirs."""
    get_object_or_404(club.Seat, pk=pk)
    booked = club.Seat.objects.filter(pk=pk, guest="").update(guest=request.POST["guest"])
    return DONE() if booked else TAKEN()


def exchange(request: HttpRequest, pk: int) -> Answer:
    """A code that is valid once gives access twice."""
    code = get_object_or_404(club.Code, pk=pk)
    if not club.Code.objects.filter(pk=pk, used=False).update(used=True):
        return TAKEN()
    club.Access.objects.create(code=code)
    return MADE()


def register(request: HttpRequest) -> Answer:
    """The form has found no such member; the unique index finds one."""
    form = MemberForm(request.POST)
    if not form.is_valid():
        return TAKEN()
    _, is_new = club.Member.objects.get_or_create(email=form.cleaned_data["email"])
    return MADE() if is_new else TAKEN()


@transaction.atomic
def allocate(request: HttpRequest, order: int, stock: int) -> Answer:
    """Each locks its own order, and not the stock that they share."""
    own = club.Order.objects.get(pk=order)
    shared = club.Stock.objects.select_for_update().get(pk=stock)
    if club.Allocation.objects.filter(stock=shared).count() >= shared.number:
        return TAKEN()
    club.Allocation.objects.create(order=own, stock=shared)
    return MADE()


@transaction.atomic
def reserve(request: HttpRequest, pk: int) -> Answer:
    """The session's lock is given back before the COMMIT."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [pk])
    if club.Reservation.objects.filter(court=pk).exists():
        return TAKEN()
    club.Reservation.objects.create(court_id=pk)
    return MADE()


@transaction.atomic
def ship(order: club.Order) -> bool:
    """The caller has read the order before."""
    order = club.Order.objects.select_for_update().get(pk=order.pk)
    if order.shipped:
        return False
    club.Parcel.objects.create(order=order)
    order.shipped = True
    order.save()
    return True


@transaction.atomic
def hand_out(request: HttpRequest) -> Answer:
    """Two people get one voucher: nothing says how many rows the DELETE has deleted."""
    voucher = club.Voucher.objects.order_by("pk").select_for_update().first()
    if voucher is None:
        return TAKEN()
    club.Voucher.objects.filter(pk=voucher.pk).delete()
    return JsonResponse({"number": voucher.number})


@transaction.atomic
def take_out(request: HttpRequest) -> Answer:
    """Rows are locked in the order that the caller sends."""
    for pk in sorted(json.loads(request.body)):
        club.Stock.objects.filter(pk=pk).update(number=F("number") - 1)
    return DONE()


def disable(request: HttpRequest, pk: int) -> Answer:
    """The whole row is written back, also the label."""
    schedule = get_object_or_404(club.Schedule, pk=pk)
    schedule.enabled = False
    schedule.save(update_fields=["enabled"])
    return DONE()


def rename(request: HttpRequest, pk: int) -> Answer:
    club.Schedule.objects.filter(pk=pk).update(label=request.POST["label"])
    return DONE()


def finish(request: HttpRequest, pk: int) -> Answer:
    """A project that was deleted meanwhile comes back."""
    finished = club.Project.objects.filter(pk=pk).update(finished=True)
    return DONE() if finished else HttpResponse(status=404)


def drop(request: HttpRequest, pk: int) -> Answer:
    deleted, _ = club.Project.objects.filter(pk=pk).delete()
    return DONE() if deleted else HttpResponse(status=404)


@transaction.atomic
def report(request: HttpRequest) -> Answer:
    """The worker may look for the row before it is committed."""
    row = club.Report.objects.create(title=request.POST["title"])
    transaction.on_commit(lambda: print_report.delay(row.pk))
    return MADE()


def sell(request: HttpRequest, pk: int) -> Answer:
    """The condition is in the UPDATE, but its count is not read."""
    ticket = get_object_or_404(club.Ticket, pk=pk)
    if not club.Ticket.objects.filter(pk=pk, left__gt=0).update(left=F("left") - 1):
        return TAKEN()
    club.Sale.objects.create(ticket=ticket)
    return MADE()


def collect(request: HttpRequest, pk: int) -> Answer:
    """The points are in the table of the parent."""
    card = get_object_or_404(club.GoldCard, pk=pk)
    club.Card.objects.filter(pk=card.pk).update(points=F("points") + 5)
    return DONE()


@transaction.atomic
def add_line(request: HttpRequest, pk: int) -> Answer:
    """A line may be added to a basket whose total was computed."""
    basket = get_object_or_404(club.Basket.objects.select_for_update(), pk=pk)
    if not basket.open:
        return TAKEN()
    basket.lines.create(price=7)
    return MADE()


@transaction.atomic
def check_out(request: HttpRequest, pk: int) -> Answer:
    basket = get_object_or_404(club.Basket.objects.select_for_update(), pk=pk)
    if not basket.open:
        return TAKEN()
    total = basket.lines.aggregate(total=Sum("price"))["total"] or 0
    club.Basket.objects.filter(pk=pk).update(open=False, total=total)
    return DONE()


def newest(request: HttpRequest) -> Answer:
    """It looks twice, and the notice may be deleted in between."""
    notice = club.Notice.objects.order_by("-pk").first()
    return HttpResponse(notice.text) if notice else TAKEN()


def withdraw_notice(request: HttpRequest, pk: int) -> Answer:
    deleted, _ = club.Notice.objects.filter(pk=pk).delete()
    return DONE() if deleted else HttpResponse(status=404)


def start(request: HttpRequest, pk: int) -> Answer:
    """The job is locked, and marked when the lock is released."""
    with transaction.atomic():
        job = club.Job.objects.select_for_update().get(pk=pk)
        if job.running:
            return TAKEN()
        club.Job.objects.filter(pk=pk).update(running=True)
        club.Run.objects.create(job=job)
    return DONE()


@transaction.atomic
def claim(request: HttpRequest) -> Answer:
    """If all tasks are locked, it takes one that is locked."""
    free = club.Task.objects.filter(worker="").order_by("pk")
    task = free.select_for_update(skip_locked=True).first()
    if task is None:
        return TAKEN()
    task.worker = request.POST["worker"]
    task.save()
    return JsonResponse({"task": task.pk})


@transaction.atomic
def join(request: HttpRequest, pk: int) -> Answer:
    """The limit is far away in every test."""
    event = get_object_or_404(club.Event.objects.select_for_update(), pk=pk)
    if event.guests.count() >= MOST_GUESTS:
        return TAKEN()
    event.guests.create(name=request.POST["name"])
    return MADE()


@login_required
@transaction.atomic
def redeem(request: Any, pk: int) -> Answer:
    """A user redeems it once by a constraint; how often all users do is counted."""
    coupon = get_object_or_404(club.Coupon.objects.select_for_update(), pk=pk)
    is_repeated = coupon.redemptions.filter(user_id=request.user.pk).exists()
    if is_repeated or coupon.redemptions.count() >= coupon.most:
        return TAKEN()
    coupon.redemptions.get_or_create(user_id=request.user.pk)
    return MADE()


@transaction.atomic
def dismiss(request: HttpRequest, pk: int) -> Answer:
    """Two admins dismiss each other, and none is left."""
    admins = club.Member.objects.filter(admin=True).order_by("pk").select_for_update()
    if not [member for member in admins if member.pk != pk]:
        return TAKEN()
    club.Member.objects.filter(pk=pk).update(admin=False)
    return DONE()
