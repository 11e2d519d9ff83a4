"""Django's own caches of rows: what one run has cached would keep the next one from asking the database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps

from django_lockstep.lab.explorer.effects.catalog import Catalog

__all__ = ["RowCaches"]


class RowCaches:
    """Fills the caches of content types and sites from the database, as they are after a while in any process."""

    def __init__(self, alias: str, catalog: Catalog) -> None:
        self._filled = [(cache, dict(cache)) for cache in _filled(alias, catalog)]

    def restore(self) -> None:
        """Put the caches back as they were filled: a run may have cached rows that no longer exist."""
        for cache, filled in self._filled:
            cache.clear()
            cache.update(filled)

    def close(self) -> None:
        """Empty the caches: the code under test may have added to them."""
        for cache, _ in self._filled:
            cache.clear()


def _filled(alias: str, catalog: Catalog) -> Iterator[dict[Any, Any]]:
    if apps.is_installed("django.contrib.contenttypes"):
        from django.contrib.contenttypes.models import ContentType

        manager: Any = ContentType.objects
        # What is in it may come from other tests, whose rows are gone.
        manager.clear_cache()
        if catalog.get(ContentType._meta.db_table) is not None:
            for content_type in manager.using(alias):
                manager._add_to_cache(alias, content_type)
            yield manager._cache.setdefault(alias, {})
    if apps.is_installed("django.contrib.sites"):
        from django.contrib.sites.models import SITE_CACHE, Site

        SITE_CACHE.clear()
        if catalog.get(Site._meta.db_table) is not None:
            for site in Site._base_manager.using(alias):
                SITE_CACHE[site.pk] = SITE_CACHE[site.domain] = site
            yield SITE_CACHE
