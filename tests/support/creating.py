"""Migrations of test apps, whose tables have no history: they are made as the models are now."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from django.apps import apps
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.graph import MigrationGraph
from django.db.migrations.operations.base import Operation
from django.db.migrations.questioner import MigrationQuestioner
from django.db.migrations.state import ProjectState

__all__ = ["creations"]


def creations(label: str) -> list[Operation]:
    """Return the operations that make the app's tables, as makemigrations would write them for a new app."""
    return [operation for migration in _changes()[label] for operation in migration.operations]


@functools.cache
def _changes() -> Mapping[str, Sequence[Any]]:
    every_app = MigrationQuestioner(specified_apps={app.label for app in apps.get_app_configs()})
    detector = MigrationAutodetector(ProjectState(), ProjectState.from_apps(apps), every_app)
    changes: Mapping[str, Sequence[Any]] = detector.changes(MigrationGraph())
    return changes
