from django.db import migrations

from accounts.editing import AddEditGuard
from accounts.locking import AddVersionGuard


class Migration(migrations.Migration):
    dependencies = [("press", "0001_initial"), ("editing", "0001_initial")]

    operations = [
        AddVersionGuard("Article"),
        AddVersionGuard("LongRead"),
        AddEditGuard("Review"),
        AddEditGuard("Cell"),
    ]
