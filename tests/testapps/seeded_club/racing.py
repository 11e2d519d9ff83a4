"""The club's pages, each with a race."""

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
    seat = get_object_or_404(club.Seat, pk=pk)
    if seat.guest:
        return TAKEN()
    seat.guest = request.POST["guest"]
    seat.save()
    return DONE()


def exchange(request: HttpRequest, pk: int) -> Answer:
    """A code that is valid once gives access twice."""
    code = get_object_or_404(club.Code, pk=pk)
    if code.used:
        return TAKEN()
    code.used = True
    code.save()
    club.Access.objects.create(code=code)
    return MADE()


def register(request: HttpRequest) -> Answer:
    """The form has found no such member; the unique index finds one."""
    form = MemberForm(request.POST)
    if not form.is_valid():
        return TAKEN()
    form.save()
    return MADE()


@transaction.atomic
def allocate(request: HttpRequest, order: int, stock: int) -> Answer:
    """Each locks its own order, and not the stock that they share."""
    own = club.Order.objects.select_for_update().get(pk=order)
    shared = club.Stock.objects.get(pk=stock)
    if club.Allocation.objects.filter(stock=shared).count() >= shared.number:
        return TAKEN()
    club.Allocation.objects.create(order=own, stock=shared)
    return MADE()


@transaction.atomic
def reserve(request: HttpRequest, pk: int) -> Answer:
    """The session's lock is given back before the COMMIT."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [pk])
    try:
        if club.Reservation.objects.filter(court=pk).exists():
            return TAKEN()
        club.Reservation.objects.create(court_id=pk)
        return MADE()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [pk])


def ship(order: club.Order) -> bool:
    """The caller has read the order before."""
    if order.shipped:
        return False
    club.Parcel.objects.create(order=order)
    order.shipped = True
    order.save()
    return True


def hand_out(request: HttpRequest) -> Answer:
    """Two people get one voucher: nothing says how many rows the DELETE has deleted."""
    voucher = club.Voucher.objects.order_by("pk").first()
    if voucher is None:
        return TAKEN()
    club.Voucher.objects.filter(pk=voucher.pk).delete()
    return JsonResponse({"number": voucher.number})


@transaction.atomic
def take_out(request: HttpRequest) -> Answer:
    """Rows are locked in the order that the caller sends."""
    for pk in json.loads(request.body):
        club.Stock.objects.filter(pk=pk).update(number=F("number") - 1)
    return DONE()


def disable(request: HttpRequest, pk: int) -> Answer:
    """The whole row is written back, also the label."""
    schedule = get_object_or_404(club.Schedule, pk=pk)
    schedule.enabled = False
    schedule.save()
    return DONE()


def rename(request: HttpRequest, pk: int) -> Answer:
    club.Schedule.objects.filter(pk=pk).update(label=request.POST["label"])
    return DONE()


def finish(request: HttpRequest, pk: int) -> Answer:
    """A project that was deleted meanwhile comes back."""
    project = get_object_or_404(club.Project, pk=pk)
    project.finished = True
    project.save()
    return DONE()


def drop(request: HttpRequest, pk: int) -> Answer:
    get_object_or_404(club.Project, pk=pk).delete()
    return DONE()


@transaction.atomic
def report(request: HttpRequest) -> Answer:
    """The worker may look for the row before it is committed."""
    row = club.Report.objects.create(title=request.POST["title"])
    print_report.delay(row.pk)
    return MADE()


def sell(request: HttpRequest, pk: int) -> Answer:
    """The condition is in the UPDATE, but its count is not read."""
    ticket = get_object_or_404(club.Ticket, pk=pk)
    if ticket.left < 1:
        return TAKEN()
    club.Ticket.objects.filter(pk=pk, left__gt=0).update(left=F("left") - 1)
    club.Sale.objects.create(ticket=ticket)
    return MADE()


def collect(request: HttpRequest, pk: int) -> Answer:
    """The points are in the table of the parent."""
    card = get_object_or_404(club.GoldCard, pk=pk)
    card.points += 5
    card.save()
    return DONE()


@transaction.atomic
def add_line(request: HttpRequest, pk: int) -> Answer:
    """A line may be added to a basket whose total was computed."""
    basket = get_object_or_404(club.Basket, pk=pk)
    if not basket.open:
        return TAKEN()
    basket.lines.create(price=7)
    return MADE()


@transaction.atomic
def check_out(request: HttpRequest, pk: int) -> Answer:
    basket = get_object_or_404(club.Basket, pk=pk)
    if not basket.open:
        return TAKEN()
    total = basket.lines.aggregate(total=Sum("price"))["total"] or 0
    club.Basket.objects.filter(pk=pk).update(open=False, total=total)
    return DONE()


def newest(request: HttpRequest) -> Answer:
    """It looks twice, and the notice may be deleted in between."""
    if not club.Notice.objects.exists():
        return TAKEN()
    return HttpResponse(club.Notice.objects.order_by("-pk")[0].text)


def withdraw_notice(request: HttpRequest, pk: int) -> Answer:
    get_object_or_404(club.Notice, pk=pk).delete()
    return DONE()


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
    task = free.select_for_update(skip_locked=True).first() or free.first()
    if task is None:
        return TAKEN()
    task.worker = request.POST["worker"]
    task.save()
    return JsonResponse({"task": task.pk})


@transaction.atomic
def join(request: HttpRequest, pk: int) -> Answer:
    """The limit is far away in every test."""
    event = get_object_or_404(club.Event, pk=pk)
    if event.guests.count() >= MOST_GUESTS:
        return TAKEN()
    event.guests.create(name=request.POST["name"])
    return MADE()


@login_required
@transaction.atomic
def redeem(request: Any, pk: int) -> Answer:
    """A user redeems it once by a constraint; how often all users do is counted."""
    coupon = get_object_or_404(club.Coupon, pk=pk)
    is_repeated = coupon.redemptions.filter(user_id=request.user.pk).exists()
    if is_repeated or coupon.redemptions.count() >= coupon.most:
        return TAKEN()
    coupon.redemptions.get_or_create(user_id=request.user.pk)
    return MADE()


@transaction.atomic
def dismiss(request: HttpRequest, pk: int) -> Answer:
    """Two admins dismiss each other, and none is left."""
    if not club.Member.objects.filter(admin=True).exclude(pk=pk).exists():
        return TAKEN()
    club.Member.objects.filter(pk=pk).update(admin=False)
    return DONE()
