from django.db import migrations

from accounts.locking.triggers import AddVersionGuard
from accounts.operations import AppendOnly


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [AddVersionGuard("Account"), AppendOnly("Entry")]
