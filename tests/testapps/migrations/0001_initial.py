import functools

from django.apps import apps
from django.conf import settings
from django.db import migrations
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.graph import MigrationGraph
from django.db.migrations.questioner import MigrationQuestioner
from django.db.migrations.state import ProjectState


@functools.cache
def changes():
    """Return what makemigrations would write, by app, if there were no migrations at all."""
    every_app = MigrationQuestioner(specified_apps={app.label for app in apps.get_app_configs()})
    detector = MigrationAutodetector(ProjectState(), ProjectState.from_apps(apps), every_app)
    return detector.changes(MigrationGraph())


class Migration(migrations.Migration):
    """The first migration of each app whose ``MIGRATION_MODULES`` is this package."""

    initial = True

    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    def __init__(self, name, app_label):
        super().__init__(name, app_label)
        self.operations = [operation for part in changes()[app_label] for operation in part.operations]
