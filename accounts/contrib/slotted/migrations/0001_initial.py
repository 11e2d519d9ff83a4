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
            name="SlottedAccount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "size",
                    models.PositiveSmallIntegerField(
                        default=16, help_text="The number of slots that take deposits.", verbose_name="size"
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False, verbose_name="created at"
                    ),
                ),
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
                "verbose_name": "slotted account",
                "verbose_name_plural": "slotted accounts",
                "default_permissions": ("add", "change", "delete", "view", "deposit", "withdraw", "transfer"),
            },
        ),
        migrations.CreateModel(
            name="Slot",
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
                ("number", models.PositiveSmallIntegerField(verbose_name="number")),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="slots",
                        to=f"{LABEL}.slottedaccount",
                        verbose_name="account",
                    ),
                ),
            ],
            options={
                "verbose_name": "slot",
                "verbose_name_plural": "slots",
                "abstract": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="SlotEntry",
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
                        to=f"{LABEL}.slot",
                        verbose_name="slot",
                    ),
                ),
            ],
            options={
                "verbose_name": "slot entry",
                "verbose_name_plural": "slot entries",
                "ordering": ["pk"],
                "abstract": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
                "indexes": [models.Index(fields=["account", "id"], name="accounts_slotentry_chain")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("idempotency_key__isnull", False)),
                        fields=("account", "idempotency_key"),
                        name=f"{LABEL}_slotentry_idempotency_key_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SlotKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("idempotency_key", models.CharField(max_length=255, verbose_name="idempotency key")),
                (
                    "account",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="keys",
                        to=f"{LABEL}.slottedaccount",
                        verbose_name="account",
                    ),
                ),
                (
                    "target",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=f"{LABEL}.slottedaccount",
                        verbose_name="target",
                    ),
                ),
            ],
            options={
                "verbose_name": "slot key",
                "verbose_name_plural": "slot keys",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("account", "idempotency_key"), name=f"{LABEL}_slotkey_once")
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="slottedaccount",
            constraint=models.CheckConstraint(
                condition=models.Q(("size__gte", 1)), name=f"{LABEL}_slottedaccount_size_at_least_1"
            ),
        ),
        migrations.AddConstraint(
            model_name="slot",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "balance__gte",
                        django.db.models.expressions.CombinedExpression(
                            models.F("overdraft_limit"), "*", models.Value(-1)
                        ),
                    )
                ),
                name=f"{LABEL}_slot_balance_within_limit",
            ),
        ),
        migrations.AddConstraint(
            model_name="slot",
            constraint=models.CheckConstraint(
                condition=models.Q(("overdraft_limit__gte", 0)), name=f"{LABEL}_slot_overdraft_limit_not_negative"
            ),
        ),
        migrations.AddConstraint(
            model_name="slot",
            constraint=models.UniqueConstraint(fields=("account", "number"), name=f"{LABEL}_slot_number"),
        ),
        AddVersionGuard("Slot"),
        AppendOnly("SlotEntry"),
    ]
