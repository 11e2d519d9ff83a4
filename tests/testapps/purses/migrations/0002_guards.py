from django.db import migrations

from django_lockstep.locking import AddVersionGuard
from accounts.operations import AppendOnly


class Migration(migrations.Migration):
    dependencies = [("purses", "0001_initial")]

    operations = [AddVersionGuard("Purse"), AppendOnly("PurseEntry")]
