"""What every change of a balance does around the lines that lock, compare and write.

`pessimistic` is for class methods, `optimistic` for instance methods. Both parse the amount and the idempotency key
before any SQL, choose the database, and raise lock errors of the driver as `django_lockstep.errors`. They take no lock
and write nothing: the method does. Both run another engine instead if a project has chosen one (`accounts.engine`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from django.db import router, transaction

from accounts.amounts import parse_amount
from accounts.engine import compilable
from accounts.entries import validate_key
from django_lockstep.errors import translated_errors
from django_lockstep.locking.rows import lock_timeout

P = ParamSpec("P")
R = TypeVar("R")

Amount: TypeAlias = Any
"""Callers pass a Decimal, an int or a decimal string; a decorated method gets a Decimal with two places."""


def pessimistic(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a class method that takes primary keys, an amount, and the rest by name.

    ``using`` is the router's database for writes unless the caller names one. ``timeout`` limits the method's waits for
    locks; the transaction in which PostgreSQL's ``lock_timeout`` is set is the decorator's, and the method joins it.
    """
    signature, run = inspect.signature(method), cast("Callable[..., R]", compilable(method))
    count = sum(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in signature.parameters.values()) - 1

    @functools.wraps(method)
    def call(model: Any, *args: Any, **options: Any) -> R:
        if len(args) != count:  # some were passed by name; binding all calls would take as long as a query's SQL
            bound = signature.bind(model, *args, **options)
            args, options = bound.args[1:], bound.kwargs
        *keys, amount = args
        amount, keys = parse_amount(amount), [model.parse_key(key) for key in keys]
        validate_key(options.get("idempotency_key"))
        using = options["using"] = options.get("using") or router.db_for_write(model)
        timeout, nowait = options.pop("timeout", None), options.get("nowait", False)
        pk = keys if len(keys) > 1 else keys[0]
        with translated_errors(model=model, pk=pk):
            try:
                if timeout is None:
                    return run(model, *keys, amount, **options)
                with transaction.atomic(using), lock_timeout(timeout, using=using, never_waits=nowait):
                    return run(model, *keys, amount, **options)
            except model.DoesNotExist as error:
                if len(keys) > 1:  # `lock_rows` has named the missing one; Django's get() does not
                    raise
                raise model.DoesNotExist(f"{model._meta.label} {pk!r} does not exist") from error

    return cast("Callable[P, R]", call)


def optimistic(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate an instance method that takes an amount, and ``idempotency_key`` by name.

    From then on the instance belongs to the router's database for writes: read again after a conflict, it does not get
    a replica's older version.
    """
    run = cast("Callable[..., R]", compilable(method))

    @functools.wraps(method)
    def call(account: Any, amount: Amount, *, idempotency_key: str | None = None) -> R:
        amount, key = parse_amount(amount), validate_key(idempotency_key)
        account._state.db = router.db_for_write(type(account), instance=account)
        with translated_errors(model=type(account), pk=account.pk):
            return run(account, amount, idempotency_key=key)

    return cast("Callable[P, R]", call)
