"""Rows that remember the highest token that wrote them, for data outside of the lease's database.

Prefer a lease guard where possible: it keeps the lease itself. A row that refuses lower tokens only prevents a paused
holder from overwriting its successor's writes (M. Kleppmann, "How to do distributed locking", 2016).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, models, router, transaction
from django.utils.translation import gettext_lazy as _

from django_lockstep.errors import translated_errors
from django_lockstep.leases.errors import StaleToken
from django_lockstep.locking.writes import column
from django_lockstep.stores.terms import valid_token

M = TypeVar("M", bound=models.Model)


class FencedQuerySet(models.QuerySet[M]):
    """Rows of a `FencedModel`."""

    def update_if_token(self, pk: object, token: int, **values: object) -> bool:
        """Write the values and the token in one UPDATE unless a higher token wrote the row; return whether it wrote.

        A row in several tables is written in one transaction, the token's table first. A missing row returns False too.
        An open transaction goes on.
        """
        fresh, owner = {"fencing_token__lte": valid_token(token)}, _owner(self.model)
        rest = {name: value for name, value in values.items() if column(self.model, name).model is not owner}
        own = {name: value for name, value in values.items() if name not in rest}
        self._for_write = True
        # No savepoint is needed: if the first UPDATE matches no row, nothing has been written.
        block = transaction.atomic(using=self.db, savepoint=False) if rest else nullcontext()
        with translated_errors(model=self.model, pk=pk), block:
            written = _token_rows(self.filter(pk=pk)).filter(**fresh).update(**own, fencing_token=token)
            if written and rest:
                self.model._base_manager.using(self.db).filter(pk=pk).update(**rest)
        return bool(written)

    async def aupdate_if_token(self, pk: object, token: int, **values: object) -> bool:
        return await sync_to_async(self.update_if_token)(pk, token, **values)


FencedManager = models.Manager.from_queryset(FencedQuerySet, "FencedManager")
"""The manager of fenced models; a project's own manager derives from it or from ``FencedQuerySet``."""


class FencedModel(models.Model):
    """A model whose rows remember the highest token that wrote them, and refuse writers with a lower one.

    ``update_if_token(handle.token, ...)`` writes some fields, in one statement where they are in one table. ``save()``
    and ``delete()`` use the instance's ``fencing_token``, as it was read. A query set's ``update()`` and ``delete()``
    do not compare tokens.
    """

    fencing_token: models.BigIntegerField[int, int] = models.BigIntegerField(
        _("fencing token"), default=0, editable=False
    )

    objects = FencedManager()

    class Meta:
        abstract = True

    def save(self, *, using: str | None = None, update_fields: Iterable[str] | None = None, **options: Any) -> None:
        """Write the instance unless a higher token wrote its row.

        The token is always among ``update_fields``; further ``options`` are passed on to the next class. Raises
        `StaleToken`, and ``ValueError`` before any SQL for an instance that was read without its token; nothing is
        written then.
        """
        using, seen = using or self._writer(), self._seen_token()
        names = None if update_fields is None else {*update_fields, "fencing_token"}
        with transaction.atomic(using=using):
            self._require_fresh(seen, using)
            super().save(using=using, update_fields=names, **options)

    def delete(
        self, using: str | None = None, keep_parents: bool = False, **options: Any
    ) -> tuple[int, dict[str, int]]:
        """Delete the row unless a higher token wrote it. Raises as `save` does; nothing is deleted then."""
        # As in `VersionedModel.delete`: only what the caller has given.
        options |= {name: value for name, value in (("using", using), ("keep_parents", keep_parents)) if value}
        using, seen = using or self._writer(), self._seen_token()
        with transaction.atomic(using=using):
            self._require_fresh(seen, using)
            return super().delete(**options)

    def update_if_token(self, token: int, **values: object) -> bool:
        """Write the values and the token, to the instance too, unless a higher token wrote the row."""
        using = self._writer()
        if not FencedQuerySet(type(self), using=using).update_if_token(self.pk, token, **values):
            return False
        # Read back instead of assigned: values may be expressions.
        self.refresh_from_db(using=using, fields=[*values, "fencing_token"])
        return True

    async def aupdate_if_token(self, token: int, **values: object) -> bool:
        return await sync_to_async(self.update_if_token)(token, **values)

    def _seen_token(self) -> int:
        if "fencing_token" not in vars(self):
            # Reading it now would fetch the highest one, and every stale write would pass.
            raise ValueError(f"{self._meta.label} {self.pk!r} was read without its 'fencing_token' (only or defer)")
        return self.fencing_token

    def _require_fresh(self, seen: int, using: str) -> None:
        """Lock the row with the token FOR NO KEY UPDATE, and compare it with the token seen."""
        features = connections[using].features
        with translated_errors(model=type(self), pk=self.pk):
            rows = _token_rows(type(self)._base_manager.using(using).filter(pk=self.pk))
            if features.has_select_for_update:
                rows = rows.select_for_update(no_key=features.has_select_for_no_key_update)
            current = rows.values_list("fencing_token", flat=True).first()
        if current is not None and current > seen:
            raise StaleToken(model=type(self), pk=self.pk, token=seen, actual=current)

    def _writer(self) -> str:
        return router.db_for_write(type(self), instance=self)


def _owner(model: type[models.Model]) -> type[models.Model]:
    """Return the model whose table has the tokens: the model itself, or the one it inherits them from."""
    return column(model, "fencing_token").model


def _token_rows(rows: models.QuerySet[Any]) -> models.QuerySet[Any]:
    """Return the rows of the token's table that belong to these, to be locked or written by token.

    For a query set of several tables Django first SELECTs the keys and then writes by key: the condition on the token
    would be in the SELECT alone, and a holder paused after it, or waiting for its successor, would overwrite the
    successor's write.
    """
    owner = _owner(rows.model)
    if owner is rows.model._meta.concrete_model and rows.query.count_active_tables() == 1:
        return rows
    # Keys only: the token is compared again by the statement that locks or writes these rows.
    keys = list(rows.values_list(owner._meta.pk.name, flat=True))
    return owner._base_manager.using(rows.db).filter(pk__in=keys)
