from django.apps import apps
from django.db import migrations

import accounts.leases.operations

LABEL = apps.get_containing_app_config(__name__).label  # type: ignore[union-attr]


class Migration(migrations.Migration):
    """Who waits first in the queue locks no lease that somebody else was faster to take."""

    dependencies = [(LABEL, "0002_functions")]

    operations = [accounts.leases.operations.LeaseFunctions("Lease")]
