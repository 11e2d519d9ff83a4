from django.apps import apps
from django.db import migrations

from accounts.locking.triggers import AddVersionGuard
from accounts.operations import AppendOnly

LABEL = apps.get_containing_app_config(__name__).label  # type: ignore[union-attr]


class Migration(migrations.Migration):
    dependencies = [(LABEL, "0001_initial")]

    operations = [AddVersionGuard("Slot"), AppendOnly("SlotEntry")]
