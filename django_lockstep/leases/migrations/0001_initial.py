from django.apps import apps
from django.db import migrations, models

import django_lockstep.leases.operations

# A project may have given the app another label.
LABEL = apps.get_containing_app_config(__name__).label  # type: ignore[union-attr]


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Lease",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=255, verbose_name="key")),
                ("token", models.BigIntegerField(verbose_name="token")),
                ("owner", models.CharField(max_length=255, verbose_name="owner")),
                ("data", models.JSONField(null=True, verbose_name="data")),
                (
                    "ttl",
                    models.FloatField(
                        help_text="In seconds, as given when it was acquired.", verbose_name="time to live"
                    ),
                ),
                ("acquired_at", models.DateTimeField(verbose_name="acquired at")),
                ("expires_at", models.DateTimeField(verbose_name="expires at")),
                ("released_at", models.DateTimeField(null=True, verbose_name="released at")),
            ],
            options={
                "verbose_name": "lease",
                "verbose_name_plural": "leases",
                "ordering": ["key"],
                "permissions": [("force_release_lease", "Can release a held lease by force")],
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(fields=("key",), name=f"{LABEL}_lease_key"),
                    models.UniqueConstraint(fields=("key", "token"), name=f"{LABEL}_lease_key_token"),
                ],
            },
        ),
        django_lockstep.leases.operations.LeaseStorage("Lease"),
    ]
