from django.db import migrations

from django_lockstep.editing import AddEditGuard
from django_lockstep.locking import AddVersionGuard


class Migration(migrations.Migration):
    dependencies = [("press", "0001_initial"), ("lockstep_editing", "0001_initial")]

    operations = [
        AddVersionGuard("Article"),
        AddVersionGuard("LongRead"),
        AddEditGuard("Review"),
        AddEditGuard("Cell"),
    ]
