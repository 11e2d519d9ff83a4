"""API tokens, with which programs act for users. The database keeps only their digests."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Self

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.db import models, router, transaction
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.translation import gettext_lazy as _

from django_lockstep.locking.durations import Duration, seconds
from django_lockstep.locking.rows import lock_rows

__all__ = ["SCOPES", "ApiToken"]

SCOPES = ("view", "deposit", "withdraw", "transfer", "change")
"""The scopes of tokens; each has the name of the permission that staff need for it."""

LIFETIME = timedelta(days=30)

_USE_RECORDED_EVERY = timedelta(minutes=1)
# The number finds the row. The secret has 256 bits of entropy, so a fast hash of it is enough.
_TOKEN = re.compile(r"([1-9][0-9]{0,17})\.([\w-]{43})", re.ASCII)


class ApiToken(models.Model):
    """An API token: its user, scopes, expiry, and last use."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", verbose_name=_("user")
    )
    name = models.CharField(_("name"), max_length=100, blank=True, help_text=_("What the token is used for."))
    scopes = models.CharField(_("scopes"), max_length=100, help_text=_("Separated by spaces."))
    digest = models.CharField(_("digest"), max_length=64, editable=False)
    created_at = models.DateTimeField(_("created at"), db_default=Now(), editable=False)
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked at"), null=True, blank=True)
    last_used_at = models.DateTimeField(_("last used at"), null=True, blank=True)

    class Meta:
        default_permissions = ("delete", "view", "revoke")
        ordering = ["pk"]
        verbose_name = _("API token")
        verbose_name_plural = _("API tokens")

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"

    @classmethod
    def issue(
        cls, user: AbstractBaseUser, *, scopes: Iterable[str] = SCOPES, name: str = "", age: Duration | None = None
    ) -> tuple[Self, str]:
        """Create a token; return its row and the token itself, which cannot be shown again.

        It is valid for ``age``, by default ``ACCOUNTS_API_TOKEN_AGE``, and until the user's password changes. Raises
        ``ValueError`` for unknown scopes, and for none.
        """
        wanted = list(scopes)
        if not wanted or not set(wanted) <= set(SCOPES):
            raise ValueError(f"scopes must be one or more of {', '.join(SCOPES)}, not {wanted!r}")
        secret = secrets.token_urlsafe(32)
        token = cls(
            user=user,
            name=name,
            scopes=" ".join(scope for scope in SCOPES if scope in wanted),
            digest=_digest(secret, user),
            expires_at=_expiry(age),
        )
        token.save(force_insert=True)
        return token, f"{token.pk}.{secret}"

    @classmethod
    def find(cls, text: str) -> ApiToken | None:
        """Return the token if it is valid now: known, not revoked, not expired, of an active user."""
        match = _TOKEN.fullmatch(text)
        if match is None:
            return None
        # From the primary: on a replica a revoked token would stay valid for a while.
        rows = ApiToken.objects.using(router.db_for_write(cls)).select_related("user")
        token = rows.filter(pk=match[1], revoked_at=None).first()
        valid = (
            token is not None and token.is_valid and constant_time_compare(token.digest, _digest(match[2], token.user))
        )
        return token if valid else None

    @property
    def is_valid(self) -> bool:
        """Whether it is neither revoked nor expired, and its user is active."""
        in_time = self.expires_at is None or self.expires_at > timezone.now()
        return bool(self.revoked_at is None and in_time and self.user.is_active)

    def record_use(self) -> None:
        """Store the time of use, at most once a minute; a request never waits for another one that does the same."""
        now = timezone.now()
        if self.last_used_at is not None and now - self.last_used_at < _USE_RECORDED_EVERY:
            return
        alias = router.db_for_write(type(self))
        with transaction.atomic(using=alias):
            # SKIP LOCKED: the session that has the row locked is writing the same value.
            if lock_rows(type(self), [self.pk], skip_locked=True, using=alias):
                type(self)._default_manager.using(alias).filter(pk=self.pk).update(last_used_at=now)

    def revoke(self) -> bool:
        """Make the token invalid from now on; return False if it was revoked already."""
        rows = type(self)._default_manager.using(router.db_for_write(type(self)))
        # Guarded by the WHERE: of two that revoke at the same time one gets True, and the first time is kept.
        return bool(rows.filter(pk=self.pk, revoked_at=None).update(revoked_at=timezone.now()))


def _digest(secret: str, user: AbstractBaseUser) -> str:
    """Return the stored digest; it includes the password's hash, so that a new password invalidates the token."""
    return hashlib.sha256(f"{secret}\n{user.password}".encode()).hexdigest()


def _expiry(age: Duration | None) -> datetime | None:
    wanted = getattr(settings, "ACCOUNTS_API_TOKEN_AGE", LIFETIME) if age is None else age
    if wanted is None:
        return None
    return timezone.now() + timedelta(seconds=seconds(wanted, name="ACCOUNTS_API_TOKEN_AGE" if age is None else "age"))
