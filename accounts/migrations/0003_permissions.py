from django.apps import apps
from django.db import migrations

LABEL = apps.get_containing_app_config(__name__).label  # type: ignore[union-attr]


class Migration(migrations.Migration):
    dependencies = [(LABEL, "0002_guards")]

    operations = [
        migrations.AlterModelOptions(
            name="account",
            options={
                "default_permissions": ("add", "change", "delete", "view", "deposit", "withdraw", "transfer"),
                "verbose_name": "account",
                "verbose_name_plural": "accounts",
            },
        ),
    ]
