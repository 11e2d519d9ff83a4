"""What the shop does outside of its pages."""

from datetime import timedelta
from decimal import Decimal

from django.db import transaction
from django.db.models import F

from .models import Basket, LoyaltyCard, Payment, Subscription, Wallet

PERIOD = timedelta(days=30)


class NotEnough(Exception):
    """There is less than what was asked for."""


def merge_baskets(guest_id: int, customer_id: int) -> None:
    """Move what a guest has chosen into the basket that the customer had before."""
    with transaction.atomic():
        # Both baskets, in one order, before anything is read of their lines.
        locked = Basket.objects.select_for_update().filter(pk__in=[guest_id, customer_id]).order_by("pk")
        baskets = {basket.pk: basket for basket in locked}
        guest, customer = baskets[guest_id], baskets[customer_id]
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
    # The reference is unique: of two calls for one payment, the second waits, and finds the row of the first.
    _, is_new = Payment.objects.get_or_create(reference=reference, defaults={"subscription_id": subscription_id})
    if is_new:
        Subscription.objects.filter(pk=subscription_id).update(paid_until=F("paid_until") + PERIOD)
    return is_new


def transfer(source_id: int, target_id: int, points: int) -> None:
    """Move points from one loyalty card to another."""
    with transaction.atomic():
        # Ordered by key, so that two transfers in opposite directions do not wait for each other.
        locked = LoyaltyCard.objects.select_for_update().filter(pk__in=[source_id, target_id]).order_by("pk")
        cards = {card.pk: card for card in locked}
        source, target = cards[source_id], cards[target_id]
        if source.points < points:
            raise NotEnough
        source.points -= points
        source.save()
        target.points += points
        target.save()


def withdraw(wallet_id: int, amount: Decimal) -> None:
    """Take money out of a wallet."""
    with transaction.atomic():
        wallet = Wallet.objects.select_for_update().get(pk=wallet_id)
        if wallet.balance < amount:
            raise NotEnough
        wallet.balance -= amount
        wallet.save()
