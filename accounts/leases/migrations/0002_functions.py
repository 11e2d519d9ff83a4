from django.apps import apps
from django.db import migrations

import accounts.leases.operations

LABEL = apps.get_containing_app_config(__name__).label  # type: ignore[union-attr]


class Migration(migrations.Migration):
    dependencies = [(LABEL, "0001_initial")]

    operations = [accounts.leases.operations.LeaseFunctions("Lease")]
