from django.conf import settings
from django.db import migrations

from django_lockstep.editing import AddEditGuard
from django_lockstep.locking import AddVersionGuard
from tests.support.creating import creations


class Migration(migrations.Migration):
    initial = True

    dependencies = [("lockstep_editing", "0001_initial"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        *creations("press"),
        *map(AddVersionGuard, ("Article", "LongRead")),
        *map(AddEditGuard, ("Review", "Cell")),
    ]
