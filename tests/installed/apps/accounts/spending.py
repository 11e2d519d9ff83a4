"""What customers do with their points."""

from typing import Any

from django.db import transaction

from django_lockstep.locking import lock_row

from .models import Account


def open_account() -> Any:
    """Return the key of a new account with 10 points."""
    return Account.objects.create(customer="Ada", points=10).pk


def spend(pk: Any) -> None:
    """Spend 10 points if they are there."""
    with transaction.atomic():
        account = lock_row(Account, pk)
        if account.points >= 10:
            account.points -= 10
            account.save()


def is_not_overdrawn(pk: Any) -> bool:
    """Whether no point was spent twice."""
    return Account.objects.get(pk=pk).points >= 0
