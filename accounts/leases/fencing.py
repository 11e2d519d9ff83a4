"""Rows that remember the highest token that wrote them, for data outside of the lease's database.

A guard is better where it can be had: it keeps the lease itself. A row that refuses lower tokens only keeps a paused
holder from undoing what its successor wrote (M. Kleppmann, "How to do distributed locking", 2016).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, models, router, transaction
from django.db.models.base import ModelBase
from django.utils.translation import gettext_lazy as _

from accounts.leases.errors import StaleToken
from accounts.leases.terms import valid_token
from accounts.locking.errors import translated_errors

__all__ = ["FencedManager", "FencedModel", "FencedQuerySet"]

M = TypeVar("M", bound=models.Model)


class FencedQuerySet(models.QuerySet[M]):
    """Rows of a `FencedModel`."""

    def update_if_token(self, pk: object, token: int, **values: Any) -> bool:
        """Write the values and the token in one UPDATE, unless a higher token wrote the row; tell whether it did.

        A row that is not there is False too. The transaction, if there is one, goes on.
        """
        rows = self.filter(pk=pk, fencing_token__lte=valid_token(token))
        with translated_errors(model=self.model, pk=pk):
            return bool(rows.update(**values, fencing_token=token))

    async def aupdate_if_token(self, pk: object, token: int, **values: Any) -> bool:
        """Do as `update_if_token`, from async code."""
        return await sync_to_async(self.update_if_token)(pk, token, **values)


FencedManager = models.Manager.from_queryset(FencedQuerySet, "FencedManager")
"""The manager of fenced models; a project's own begins with ``FencedManager`` or ``FencedQuerySet``."""


class FencedModel(models.Model):
    """A model whose rows remember the highest token that wrote them, and refuse writers with a lower one.

    ``update_if_token(handle.token, ...)`` writes some fields in one statement. ``save()`` and ``delete()`` go by the
    instance's ``fencing_token``, which is the row's when it was read. A query set's own ``update()`` and ``delete()``
    ask nobody.
    """

    fencing_token: models.BigIntegerField[int, int] = models.BigIntegerField(
        _("fencing token"), default=0, editable=False
    )

    objects = FencedManager()

    class Meta:
        abstract = True

    def save(
        self,
        *,
        force_insert: bool | tuple[ModelBase, ...] = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        """Write the instance unless a higher token wrote its row; as Django's otherwise.

        The token goes along with ``update_fields``. Raises `StaleToken`; nothing was written then.
        """
        using = using or self._writer()
        names = None if update_fields is None else {*update_fields, "fencing_token"}
        with transaction.atomic(using=using):
            self._require_fresh(using)
            super().save(force_insert=force_insert, force_update=force_update, using=using, update_fields=names)

    def delete(self, using: str | None = None, keep_parents: bool = False) -> tuple[int, dict[str, int]]:
        """Delete the row unless a higher token wrote it. Raises `StaleToken`; nothing was deleted then."""
        using = using or self._writer()
        with transaction.atomic(using=using):
            self._require_fresh(using)
            return super().delete(using=using, keep_parents=keep_parents)

    def update_if_token(self, token: int, **values: Any) -> bool:
        """Write the values and the token unless a higher token wrote the row; the instance gets them if it did."""
        using = self._writer()
        if not FencedQuerySet(type(self), using=using).update_if_token(self.pk, token, **values):
            return False
        self.refresh_from_db(using=using, fields=[*values, "fencing_token"])
        return True

    async def aupdate_if_token(self, token: int, **values: Any) -> bool:
        """Do as `update_if_token`, from async code."""
        return await sync_to_async(self.update_if_token)(token, **values)

    def _require_fresh(self, using: str) -> None:
        """Lock the row, FOR NO KEY UPDATE, and compare its token with the instance's."""
        rows = type(self)._base_manager.using(using).filter(pk=self.pk)
        if connections[using].features.has_select_for_update:
            rows = rows.select_for_update(no_key=connections[using].features.has_select_for_no_key_update)
        with translated_errors(model=type(self), pk=self.pk):
            found = rows.values_list("fencing_token", flat=True).first()
        if found is not None and found > self.fencing_token:
            raise StaleToken(model=type(self), pk=self.pk, token=self.fencing_token, found=found)

    def _writer(self) -> str:
        return router.db_for_write(type(self), instance=self)
