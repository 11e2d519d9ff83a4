"""The club's tables."""

from django.conf import settings
from django.db import models


class Seat(models.Model):
    guest = models.CharField(max_length=50, blank=True)


class Code(models.Model):
    used = models.BooleanField(default=False)


class Access(models.Model):
    code = models.ForeignKey(Code, on_delete=models.CASCADE)


class Member(models.Model):
    email = models.EmailField(unique=True)
    admin = models.BooleanField(default=False)


class Stock(models.Model):
    number = models.PositiveIntegerField(default=1)


class Order(models.Model):
    shipped = models.BooleanField(default=False)


class Allocation(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    stock = models.ForeignKey(Stock, on_delete=models.CASCADE)


class Parcel(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)


class Court(models.Model):
    name = models.CharField(max_length=50, blank=True)


class Reservation(models.Model):
    court = models.ForeignKey(Court, on_delete=models.CASCADE)


class Voucher(models.Model):
    number = models.CharField(max_length=20)


class Schedule(models.Model):
    label = models.CharField(max_length=50, default="weekly")
    enabled = models.BooleanField(default=True)


class Project(models.Model):
    finished = models.BooleanField(default=False)


class Report(models.Model):
    title = models.CharField(max_length=50)


class Ticket(models.Model):
    left = models.PositiveIntegerField(default=1)


class Sale(models.Model):
    ticket = models.ForeignKey(Ticket, on_delete=models.CASCADE)


class Card(models.Model):
    points = models.IntegerField(default=0)


class GoldCard(Card):
    """In a table of its own; the points are in that of `Card`."""

    lounge = models.BooleanField(default=False)


class Basket(models.Model):
    open = models.BooleanField(default=True)
    total = models.IntegerField(default=0)


class Line(models.Model):
    basket = models.ForeignKey(Basket, on_delete=models.CASCADE, related_name="lines")
    price = models.IntegerField()


class Notice(models.Model):
    text = models.CharField(max_length=50)


class Job(models.Model):
    running = models.BooleanField(default=False)


class Run(models.Model):
    job = models.ForeignKey(Job, on_delete=models.CASCADE)


class Task(models.Model):
    worker = models.CharField(max_length=50, blank=True)


class Event(models.Model):
    title = models.CharField(max_length=50, blank=True)


class Guest(models.Model):
    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="guests")
    name = models.CharField(max_length=50)


class Coupon(models.Model):
    most = models.PositiveIntegerField(default=1)


class Redemption(models.Model):
    coupon = models.ForeignKey(Coupon, on_delete=models.CASCADE, related_name="redemptions")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["coupon", "user"], name="redeemed_once")]
