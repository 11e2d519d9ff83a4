"""The rows of the demo: in every room something to see. Making them again changes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.utils.crypto import salted_hmac

from accounts.models import Account
from bank.models import Article, Author
from django_lockstep.editing import check_out
from django_lockstep.leases.models import Lease

SUPERUSER = "admin"
"""The name of the superuser."""
_KEPT = timedelta(days=1)
"""How long the lease and the edit lock last; the next start after that takes them again."""


def create_superuser() -> str | None:
    """Create the superuser if there is none, and return the password; None if it was changed since.

    The password follows from ``SECRET_KEY``, which is random for each installation, so that it can be shown again
    without being stored.
    """
    users = get_user_model()._default_manager
    password = salted_hmac("bank.demo_data", SUPERUSER, algorithm="sha256").hexdigest()[:16]
    user = users.filter(username=SUPERUSER).first() or users.create_superuser(SUPERUSER, password=password)
    return password if user.check_password(password) else None


def create_demo_data() -> None:
    """Create what is missing, room by room: each one is committed by itself, as its own operations do."""
    ada, grace = _user("ada"), _user("grace")
    _accounts(ada, grace)
    _edit_lock(grace)
    # One holder for all starts: the second one is refused, because the lease is held.
    Lease.objects.acquire("nightly-report", _KEPT, owner="worker-1", data={"day": "Monday"})


def _user(name: str) -> Any:
    """Return a member of the staff who cannot log in."""
    users = get_user_model()._default_manager
    user, created = users.get_or_create(username=name, defaults={"is_staff": True})
    if created:
        user.set_unusable_password()
        user.save()
    return user


def _accounts(ada: Any, grace: Any) -> None:
    """Open two accounts, with a history that both kinds of methods have written."""
    if Account.objects.exists():
        return
    mine, theirs = (Account.objects.create(user=user, overdraft_limit=200) for user in (ada, grace))
    Account.deposit(mine.pk, "500.00", idempotency_key="salary-1")
    Account.withdraw(mine.pk, "120.50")
    Account.transfer(mine.pk, theirs.pk, "75.00")
    theirs.refresh_from_db()
    theirs.try_deposit("40.00")
    theirs.try_withdraw("15.25")


def _edit_lock(editor: Any) -> None:
    """Create articles, and let another user edit the first one."""
    if not Article.objects.exists():
        author = Author.objects.create(name="Ada Lovelace")
        Article.objects.create(title="On waiting", text="The second caller waits for the first one.", author=author)
        Article.objects.create(title="On comparing", text="The second caller is told to read again.", author=author)
    first = Article.objects.order_by("pk").first()
    check_out(first, editor, ttl=_KEPT, shared_references=True, note="Rewriting the introduction")
