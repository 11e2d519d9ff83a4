import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
from decimal import Decimal
from django.apps import apps
from django.conf import settings
from django.db import migrations, models

import accounts.opening
import django_lockstep.locking.fields
from accounts.operations import AppendOnly
from django_lockstep.locking.triggers import AddVersionGuard

# A project may have given the app another label.
LABEL = apps.get_containing_app_config(__name__).label  # type: ignore[union-attr]


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Account",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "version",
                    django_lockstep.locking.fields.VersionField(
                        db_default=1, default=0, help_text="record revision number"
                    ),
                ),
                (
                    "balance",
                    models.DecimalField(
                        decimal_places=2, default=Decimal("0.00"), max_digits=19, verbose_name="balance"
                    ),
                ),
                (
                    "overdraft_limit",
                    models.DecimalField(
                        decimal_places=2, default=Decimal("0.00"), max_digits=19, verbose_name="overdraft limit"
                    ),
                ),
                (
                    "opening_balance",
                    accounts.opening.OpeningBalanceField(
                        decimal_places=2, editable=False, max_digits=19, null=True, verbose_name="opening balance"
                    ),
                ),
                (
                    "entry_count",
                    models.PositiveBigIntegerField(
                        db_default=0, default=0, editable=False, verbose_name="number of entries"
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False, verbose_name="created at"
                    ),
                ),
                ("updated_at", models.DateTimeField(auto_now=True, verbose_name="updated at")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="%(app_label)s_%(class)s_set",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "account",
                "verbose_name_plural": "accounts",
                "default_permissions": ("add", "change", "delete", "view", "deposit", "withdraw", "transfer"),
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Entry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "amount",
                    models.DecimalField(
                        decimal_places=2,
                        help_text="Negative for a withdrawal.",
                        max_digits=19,
                        verbose_name="amount",
                    ),
                ),
                ("balance_after", models.DecimalField(decimal_places=2, max_digits=19, verbose_name="balance after")),
                ("version_after", models.BigIntegerField(verbose_name="version after")),
                (
                    "idempotency_key",
                    models.CharField(blank=True, max_length=255, null=True, verbose_name="idempotency key"),
                ),
                (
                    "transfer",
                    models.UUIDField(
                        blank=True,
                        help_text="The same for both entries of a transfer.",
                        null=True,
                        verbose_name="transfer",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False, verbose_name="created at"
                    ),
                ),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="entries",
                        to=f"{LABEL}.account",
                        verbose_name="account",
                    ),
                ),
            ],
            options={
                "verbose_name": "entry",
                "verbose_name_plural": "entries",
                "ordering": ["pk"],
                "abstract": False,
                "base_manager_name": "objects",
            },
        ),
        migrations.AddConstraint(
            model_name="account",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "balance__gte",
                        django.db.models.expressions.CombinedExpression(
                            models.F("overdraft_limit"), "*", models.Value(-1)
                        ),
                    )
                ),
                name=f"{LABEL}_account_balance_within_limit",
            ),
        ),
        migrations.AddConstraint(
            model_name="account",
            constraint=models.CheckConstraint(
                condition=models.Q(("overdraft_limit__gte", 0)), name=f"{LABEL}_account_overdraft_limit_not_negative"
            ),
        ),
        migrations.AddIndex(
            model_name="entry",
            index=models.Index(fields=["account", "id"], name="accounts_entry_chain"),
        ),
        migrations.AddConstraint(
            model_name="entry",
            constraint=models.UniqueConstraint(
                condition=models.Q(("idempotency_key__isnull", False)),
                fields=("account", "idempotency_key"),
                name=f"{LABEL}_entry_idempotency_key_once",
            ),
        ),
        AddVersionGuard("Account"),
        AppendOnly("Entry"),
    ]
