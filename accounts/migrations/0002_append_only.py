from django.db import migrations

from accounts.operations import AppendOnly


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [AppendOnly("Entry")]
