"""What the shop does outside of its pages."""

from datetime import timedelta
from decimal import Decimal

from django.db import transaction

from .models import Basket, LoyaltyCard, Payment, Subscription, Wallet

PERIOD = timedelta(days=30)


class NotEnough(Exception):
    """There is less than what was asked for."""


def merge_baskets(guest_id: int, customer_id: int) -> None:
    """Move what a guest has chosen into the basket that the customer had before."""
    with transaction.atomic():
        guest = Basket.objects.get(pk=guest_id)
        customer = Basket.objects.get(pk=customer_id)
        if guest.status != Basket.Status.OPEN:
            return
        for line in guest.lines.order_by("pk"):
            customer.lines.create(product=line.product, quantity=line.quantity)
        guest.lines.all().delete()
        guest.status = Basket.Status.MERGED
        guest.save()


@transaction.atomic
def renew(subscription_id: int, reference: str) -> bool:
    """Extend a subscription for a payment that the provider tells us of; return whether the payment is new."""
    if Payment.objects.filter(reference=reference).exists():
        return False
    subscription = Subscription.objects.get(pk=subscription_id)
    subscription.paid_until += PERIOD
    subscription.save()
    Payment.objects.create(subscription=subscription, reference=reference)
    return True


def transfer(source_id: int, target_id: int, points: int) -> None:
    """Move points from one loyalty card to another."""
    with transaction.atomic():
        source = LoyaltyCard.objects.select_for_update().get(pk=source_id)
        target = LoyaltyCard.objects.select_for_update().get(pk=target_id)
        if source.points < points:
            raise NotEnough
        source.points -= points
        source.save()
        target.points += points
        target.save()


def withdraw(wallet_id: int, amount: Decimal) -> None:
    """Take money out of a wallet."""
    wallet = Wallet.objects.get(pk=wallet_id)
    if wallet.balance < amount:
        raise NotEnough
    with transaction.atomic():
        wallet = Wallet.objects.select_for_update().get(pk=wallet_id)
        wallet.balance -= amount
        wallet.save()
