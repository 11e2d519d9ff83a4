"""The shop's tables."""

from django.conf import settings
from django.db import models


class Coupon(models.Model):
    code = models.CharField(max_length=20, unique=True)
    limit = models.PositiveIntegerField(default=1)
    used = models.PositiveIntegerField(default=0)


class Product(models.Model):
    name = models.CharField(max_length=50)
    stock = models.PositiveIntegerField(default=0)


class Order(models.Model):
    customer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="orders")
    quantity = models.PositiveIntegerField()


class WishList(models.Model):
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=50, default="My wishes")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner"], name="one_wish_list_per_owner")]


class Wish(models.Model):
    wish_list = models.ForeignKey(WishList, on_delete=models.CASCADE, related_name="wishes")
    product = models.CharField(max_length=50)


class Show(models.Model):
    title = models.CharField(max_length=50)


class Booking(models.Model):
    show = models.ForeignKey(Show, on_delete=models.CASCADE, related_name="bookings")
    seat = models.CharField(max_length=5)
    guest = models.CharField(max_length=50)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["show", "seat"], name="one_booking_per_seat")]


class Article(models.Model):
    slug = models.SlugField(unique=True)
    title = models.CharField(max_length=50)
    views = models.PositiveIntegerField(default=0)


class Expense(models.Model):
    class Status(models.TextChoices):
        PENDING = "pending"
        APPROVED = "approved"
        REJECTED = "rejected"

    purpose = models.CharField(max_length=50)
    status = models.CharField(max_length=10, choices=Status, default=Status.PENDING)
    version = models.PositiveIntegerField(default=1)


class Decision(models.Model):
    expense = models.ForeignKey(Expense, on_delete=models.CASCADE, related_name="decisions")
    manager = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    status = models.CharField(max_length=10, choices=Expense.Status)


class Message(models.Model):
    sender = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    text = models.TextField()
    sent_at = models.DateTimeField(auto_now_add=True)


class Shift(models.Model):
    doctor = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    on_call = models.BooleanField(default=True)


class Basket(models.Model):
    class Status(models.TextChoices):
        OPEN = "open"
        MERGED = "merged"

    status = models.CharField(max_length=10, choices=Status, default=Status.OPEN)


class Line(models.Model):
    basket = models.ForeignKey(Basket, on_delete=models.CASCADE, related_name="lines")
    product = models.CharField(max_length=50)
    quantity = models.PositiveIntegerField(default=1)


class Subscription(models.Model):
    customer = models.CharField(max_length=50)
    paid_until = models.DateField()


class Payment(models.Model):
    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="payments")
    reference = models.CharField(max_length=50, unique=True)


class LoyaltyCard(models.Model):
    number = models.CharField(max_length=20, unique=True)
    points = models.IntegerField(default=0)


class Wallet(models.Model):
    balance = models.DecimalField(max_digits=10, decimal_places=2, default=0)
