"""The operations of the API, over one account model. Their annotations are real: django-ninja reads them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connections, router
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from ninja.errors import HttpError

from accounts.amounts import parse_amount, parse_limit
from accounts.api.idempotency import idempotency_key, one_at_a_time
from accounts.api.limits import bounded_waits
from accounts.api.schemas import AccountIn, ChangeIn, TransferIn
from accounts.api.tokens import has_scope, require_scope
from accounts.errors import InsufficientFunds
from accounts.models import AbstractAccount
from django_lockstep.http import check_preconditions, etag, not_modified, require_match, seen_elsewhere
from django_lockstep.http.preconditions import PreconditionFailed, parse_tags
from django_lockstep.locking import DeadlockDetected, SerializationFailure, lock_rows, retry_on_conflict

__all__ = ["AccountOperations"]

_CONDITIONS = ("If-Match", "If-None-Match")


class AccountOperations:
    """The views of the API for one account model: users have their own accounts, staff all, by their permissions."""

    def __init__(self, model: type[AbstractAccount]) -> None:
        self.model = model

    # Reading

    def accounts(self, request: HttpRequest) -> QuerySet[Any]:
        """List the accounts that the client may see, by primary key."""
        require_scope(request, "view")
        return self._visible(request, "view").order_by("pk")

    def account(self, request: HttpRequest, response: HttpResponse, pk: str) -> Any:
        """Return one account; 304 where the client has this version."""
        account = self._find(request, pk, "view")
        response["ETag"] = etag(account)
        return HttpResponse(status=304, headers={"ETag": etag(account)}) if not_modified(request, account) else account

    def entries(self, request: HttpRequest, pk: str) -> QuerySet[Any]:
        """List the entries of an account, the newest first."""
        account: Any = self._find(request, pk, "view")
        changes: QuerySet[Any] = account.entries.order_by("-pk")
        return changes

    # Changing

    def put_account(self, request: HttpRequest, response: HttpResponse, pk: str, body: AccountIn) -> Any:
        """Change the overdraft limit, if the account has the version in ``If-Match``; for staff."""
        account = self._find(request, pk, "change")
        self._require(request, "change", owner_may=False)
        require_match(request, account)
        limit = parse_limit(body.overdraft_limit)
        try:
            # The version in the UPDATE's WHERE closes the gap between checking If-Match and writing.
            with seen_elsewhere(account), bounded_waits(using=self._alias):
                written = account.update_if_unchanged(overdraft_limit=limit)
        except IntegrityError as error:
            raise HttpError(409, "The balance is already below this limit") from error
        if not written:
            raise PreconditionFailed(etag=etag(self._find(request, pk, "change")))
        response["ETag"] = etag(account)
        return self._visible_part(request, account)

    def deposit(self, request: HttpRequest, response: HttpResponse, pk: str, body: ChangeIn) -> Any:
        """Add an amount, waiting for the row; with ``If-Match``, only in that version."""
        return self._change(request, response, pk, kind="deposit", amount=body.amount)

    def withdraw(self, request: HttpRequest, response: HttpResponse, pk: str, body: ChangeIn) -> Any:
        """Subtract an amount, down to the overdraft limit; otherwise as a deposit."""
        return self._change(request, response, pk, kind="withdraw", amount=body.amount)

    def transfer(self, request: HttpRequest, response: HttpResponse, body: TransferIn) -> Any:
        """Move an amount from one of the client's accounts to any other; with ``If-Match``, only in that version."""
        source, key = self._find(request, body.source, "transfer"), idempotency_key(request)
        self._require(request, "transfer", account=source)
        target = self._lookup(self.model._default_manager.all(), body.target)
        if target is None or target.pk == source.pk:
            raise HttpError(422, "The target must be another account")
        conditional = _is_conditional(request)
        if conditional:
            self._check(request, source, key)

        def move() -> Any:
            with one_at_a_time(key, scope=self._scope(source), using=self._alias):
                # Checked again under the locks: the first check was only an early answer without a transaction.
                if conditional:
                    self._check(request, self._locked(source, target), key)
                return self.model.transfer(source.pk, target.pk, parse_amount(body.amount), idempotency_key=key)

        with self._hide_funds(request, source):
            source, _ = self._retried(move)
        response["ETag"] = etag(source)
        return {"source": self._visible_part(request, source), "target": body.target}

    def _change(self, request: HttpRequest, response: HttpResponse, pk: str, *, kind: str, amount: str) -> Any:
        account, key = self._find(request, pk, kind), idempotency_key(request)
        self._require(request, kind, account=account)
        # With If-Match the client decided on a version, so the write must not wait and then use a newer one.
        optimistic = "If-Match" in request.headers
        if _is_conditional(request):
            self._check(request, account, key)

        def change() -> Any:
            with one_at_a_time(key, scope=self._scope(account), using=self._alias):
                if not optimistic:
                    return getattr(self.model, kind)(account.pk, parse_amount(amount), idempotency_key=key)
                return account if getattr(account, f"try_{kind}")(parse_amount(amount), idempotency_key=key) else None

        with self._hide_funds(request, account):
            changed = self._retried(change)
        if changed is None:
            raise PreconditionFailed(etag=etag(self._find(request, pk, kind)))
        response["ETag"] = etag(changed)
        return self._visible_part(request, changed)

    # Permissions

    def _visible(self, request: HttpRequest, kind: str) -> QuerySet[Any]:
        """Return the accounts that the client may see, or may perform this operation on."""
        # From the database that is written: on a replica the version to compare might be an older one.
        everyone: QuerySet[Any] = self.model._default_manager.using(self._alias).all()
        return everyone if self._is_staff_for(request, "view", kind) else everyone.filter(user=request.user)

    def _is_staff_for(self, request: HttpRequest, *kinds: str) -> bool:
        user: Any = request.user
        return bool(user.is_staff and any(user.has_perm(self._permission(kind)) for kind in kinds))

    def _may_see(self, request: HttpRequest, account: Any) -> bool:
        own = account.user_id == request.user.pk
        return has_scope(request, "view") and (own or self._is_staff_for(request, "view"))

    def _visible_part(self, request: HttpRequest, account: Any) -> Any:
        """Return the account for a response; without balance and limit for staff who may book but not view."""
        if self._may_see(request, account):
            return account
        return SimpleNamespace(pk=account.pk, balance=None, overdraft_limit=None, version=account.version)

    @contextmanager
    def _hide_funds(self, request: HttpRequest, account: Any) -> Iterator[None]:
        """Remove balance and limit from the error, where the client may not see them."""
        try:
            yield
        except InsufficientFunds as error:
            if self._may_see(request, account):
                raise
            raise HttpError(409, "The account does not cover the amount.") from error

    def _find(self, request: HttpRequest, pk: str, kind: str) -> Any:
        """Return the account if the client may see it, or may perform this operation on it.

        Raises ``Http404`` otherwise, so that other users' accounts cannot be probed; ``HttpError`` 403 for a token
        without the scope.
        """
        require_scope(request, kind)
        found = self._lookup(self._visible(request, kind), pk)
        if found is None:
            raise Http404
        return found

    def _lookup(self, accounts: QuerySet[Any], pk: str) -> Any | None:
        """Return the account by its key as the API writes it: "1_0" or digits of other scripts do not match."""
        try:
            key = self.model._meta.pk.to_python(pk)
        except ValidationError as error:
            raise Http404 from error
        return accounts.filter(pk=key).first() if str(key) == pk and "\0" not in pk else None

    def _require(self, request: HttpRequest, kind: str, *, account: Any = None, owner_may: bool = True) -> None:
        own = owner_may and account is not None and account.user_id == request.user.pk
        if not (own or self._is_staff_for(request, kind)):
            raise HttpError(403, f"Requires the permission to {kind}")

    def _permission(self, kind: str) -> str:
        options = self.model._meta
        return f"{options.app_label}.{kind}_{options.model_name}"

    # Locks, preconditions, retries

    def _retried(self, change: Callable[[], Any]) -> Any:
        if connections[self._alias].settings_dict["ATOMIC_REQUESTS"]:
            return change()  # a retry would need a new transaction, but the request already is one
        return retry_on_conflict(on=(DeadlockDetected, SerializationFailure))(change)()

    def _check(self, request: HttpRequest, account: Any, key: str | None) -> None:
        """Check the preconditions, unless the key was used before: a repeated request gets the first response again.

        A malformed list of tags is refused in both cases.
        """
        for name in _CONDITIONS:
            if name in request.headers:
                parse_tags(request.headers[name])
        if key is None or not account.entries.using(self._alias).filter(idempotency_key=key).exists():
            check_preconditions(request, account)

    def _locked(self, source: Any, target: Any) -> Any:
        """Lock both rows in primary-key order, as `transfer` does; return the source as it now is."""
        rows = lock_rows(self.model, [source.pk, target.pk], using=self._alias)
        return next(row for row in rows if row.pk == source.pk)

    def _scope(self, account: Any) -> str:
        return f"{self.model._meta.label_lower} {account.pk}"

    @property
    def _alias(self) -> str:
        return router.db_for_write(self.model)


def _is_conditional(request: HttpRequest) -> bool:
    return any(name in request.headers for name in _CONDITIONS)
