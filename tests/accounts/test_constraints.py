"""What the database refuses to every writer: the rules that the methods check too, with better errors."""

import pytest
from django.db import IntegrityError, transaction

from accounts.models import Account


@pytest.mark.parametrize("values", [{"balance": -1}, {"overdraft_limit": -1}, {"balance": -6, "overdraft_limit": 5}])
def test_the_database_refuses_what_the_rules_forbid(account: Account, values: dict[str, int]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Account.objects.filter(pk=account.pk).update(**values)


def test_a_user_with_an_account_cannot_be_deleted(account: Account) -> None:
    with pytest.raises(IntegrityError):
        account.user.delete()
