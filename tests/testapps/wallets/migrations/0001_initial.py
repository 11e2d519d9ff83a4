from typing import Any

from django.db import migrations


def create(apps: Any, schema_editor: Any) -> None:
    """Create the tables as the models are, so that this file need not follow every change of the abstract ones."""
    from tests.testapps.wallets.models import Receipt, Wallet

    for model in (Wallet, Receipt):
        schema_editor.create_model(model)


class Migration(migrations.Migration):
    dependencies = [("accounts", "__first__")]

    operations = [migrations.RunPython(create)]
