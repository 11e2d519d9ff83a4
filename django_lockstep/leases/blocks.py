"""``lease`` and ``exclusive``: a block and a decorator for code that runs only while it holds the key."""

from __future__ import annotations

import functools
import inspect
import logging
import string
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from asgiref.sync import iscoroutinefunction, sync_to_async

from django_lockstep.leases.errors import LeaseNotAcquired
from django_lockstep.leases.handles import Callback, LeaseHandle, aacquire_from, acquire_from
from django_lockstep.leases.stores import find_store
from django_lockstep.locking.decorating import refuse_generator
from django_lockstep.locking.durations import Duration, seconds
from django_lockstep.stores.terms import Claim, ClaimOptions, Holder, claim

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("lockstep.leases")


class LeaseOptions(ClaimOptions, total=False):
    """How to hold; see `lease`."""

    wait: Duration
    heartbeat: bool
    on_lost: Callback | None
    on_danger: Callback | None
    margin: Duration | None
    using: str | None
    store: str | None


class lease:  # noqa: N801 - a function to its users, as transaction.atomic is
    """Hold the lease for the length of a block, ``with`` or ``async with``; the block gets the `LeaseHandle`.

    ``owner``, ``wait``, ``at_least`` and ``data`` are those of ``Lease.objects.acquire``.
    ``heartbeat=True`` refreshes the lease at a third of ``ttl`` while the block runs; a lost lease calls
    ``on_lost(handle)`` once, from the thread that detects it, and makes ``handle.check()`` raise. ``on_danger(handle)``
    is called ``margin`` seconds before the end (default: a third of ``ttl``), unless the lease is refreshed earlier.
    Errors of callbacks are logged. ``using`` names the database, ``store`` a store of ``LOCKSTEP_STORES`` instead.

    The lease is released at the end of the block, also after an exception, which passes unchanged. The object can be
    reused, but not inside its own block: enter the handle there.

    Raises `LeaseNotAcquired`, which names the holder, and what ``acquire`` raises.
    """

    def __init__(
        self,
        key: str,
        ttl: Duration,
        *,
        wait: Duration = 0,
        heartbeat: bool = False,
        on_lost: Callback | None = None,
        on_danger: Callback | None = None,
        margin: Duration | None = None,
        using: str | None = None,
        store: str | None = None,
        **options: Unpack[ClaimOptions],
    ) -> None:
        if using is not None and store is not None:
            raise ValueError(f"a lease is on one database or in one store, not using={using!r} and store={store!r}")
        self._new_claim = functools.partial(claim, key, ttl, **options)
        self._new_claim()  # wrong arguments raise here
        self._wait = seconds(wait, name="wait", or_zero=True)
        self._heartbeat = heartbeat
        self._on_lost = on_lost
        self._on_danger = on_danger
        self._margin = None if margin is None else seconds(margin, name="margin")
        # Looked up when the block begins: settings and connections may not be there yet.
        self._store = functools.partial(find_store, store, using=using)
        self._handle: LeaseHandle | None = None

    def __enter__(self) -> LeaseHandle:
        claim = self._begin()
        return self._entered(claim, acquire_from(self._store(), claim, wait=self._wait, on_lost=self._on_lost))

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.__exit__(kind, error, traceback)

    async def __aenter__(self) -> LeaseHandle:
        claim = self._begin()
        return self._entered(claim, await aacquire_from(self._store(), claim, wait=self._wait, on_lost=self._on_lost))

    async def __aexit__(self, *error: Any) -> None:
        await sync_to_async(self.__exit__)(*error)

    def _begin(self) -> Claim:
        if self._handle is not None:
            raise RuntimeError(f"This block already holds lease {self._handle.key!r}; enter its handle instead")
        return self._new_claim()

    def _entered(self, claim: Claim, answer: LeaseHandle | Holder | None) -> LeaseHandle:
        if not isinstance(answer, LeaseHandle):
            reason = answer or "has a queue of claims"
            raise LeaseNotAcquired(f"Lease {claim.key!r} {reason}", key=claim.key, holder=answer)
        # Before the heartbeat starts: from here on the end of the block releases the lease.
        self._handle = answer.__enter__()
        if self._heartbeat:
            answer.start_heartbeat()
        if self._on_danger is not None:
            answer.watch(self._on_danger, margin=self._margin)
        return answer


class Decorator(Protocol):
    """What `exclusive` returns; a coroutine function stays one."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | None]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]: ...


def exclusive(key: str, ttl: Duration, *, skip: bool = False, **options: Unpack[LeaseOptions]) -> Decorator:
    """Decorate a function, or a coroutine function, so that it runs only while it holds the lease.

    ``key`` is a template for ``str.format``, filled from the call's arguments by name: ``"bill-{customer.pk}"``.
    ``options`` are those of `lease`. Where another holder has the key, ``skip=True`` returns None without running it;
    otherwise `LeaseNotAcquired` is raised.

    Raises ``ValueError`` at once for a template with a name that is not a parameter, ``TypeError`` for a generator
    function.
    """

    def decorate(function: Callable[..., Any], /) -> Callable[..., Any]:
        refuse_generator(function, decorator="exclusive")
        signature = inspect.signature(function)
        # Checked when the module is imported, not at the first call.
        fields = [name for _, name, _, _ in string.Formatter().parse(key) if name is not None]
        if unknown := {name.split(".")[0].split("[")[0] for name in fields} - set(signature.parameters):
            raise ValueError(
                f"key {key!r} names {', '.join(sorted(unknown)) or 'nothing'}, which is not a parameter of the function"
            )

        def block(*args: object, **kwargs: object) -> lease:
            call = signature.bind(*args, **kwargs)
            call.apply_defaults()
            return lease(key.format(**call.arguments), ttl, **options)

        wrap = _around_coroutine if iscoroutinefunction(function) else _around
        return wrap(function, block, skip=skip)

    return cast("Decorator", decorate)


def _around(function: Callable[P, R], block: Callable[P, lease], *, skip: bool) -> Callable[P, R | None]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
        with ExitStack() as stack:
            try:
                stack.enter_context(block(*args, **kwargs))
            except LeaseNotAcquired as refusal:
                _skipped(refusal, skip=skip)
                return None
            return function(*args, **kwargs)

    return call


def _around_coroutine(function: Callable[P, Any], block: Callable[P, lease], *, skip: bool) -> Callable[P, Any]:
    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(block(*args, **kwargs))
            except LeaseNotAcquired as refusal:
                _skipped(refusal, skip=skip)
                return None
            return await function(*args, **kwargs)

    return call


def _skipped(refusal: LeaseNotAcquired, *, skip: bool) -> None:
    if not skip:
        raise refusal
    logger.info("Skipped: %s", refusal)
