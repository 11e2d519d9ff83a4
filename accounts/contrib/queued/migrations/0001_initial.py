import django.db.models.deletion
import django.db.models.functions.datetime
from django.apps import apps
from django.db import migrations, models

# A project may have given the apps other labels.
LABEL = apps.get_containing_app_config(__name__).label  # type: ignore[union-attr]
ACCOUNTS = apps.get_containing_app_config("accounts.models").label  # type: ignore[union-attr]


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        (ACCOUNTS, "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="QueuedChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "amount",
                    models.DecimalField(
                        decimal_places=2,
                        help_text="Negative for a withdrawal; positive for a transfer.",
                        max_digits=19,
                        verbose_name="amount",
                    ),
                ),
                (
                    "idempotency_key",
                    models.CharField(blank=True, max_length=255, null=True, verbose_name="idempotency key"),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("applied", "applied"),
                            ("refused", "refused"),
                            ("failed", "failed"),
                        ],
                        default="pending",
                        max_length=10,
                        verbose_name="state",
                    ),
                ),
                (
                    "balance_after",
                    models.DecimalField(decimal_places=2, max_digits=19, null=True, verbose_name="balance after"),
                ),
                ("version_after", models.BigIntegerField(null=True, verbose_name="version after")),
                (
                    "replayed",
                    models.BooleanField(
                        help_text="Whether the account had applied this idempotency key before.",
                        null=True,
                        verbose_name="replayed",
                    ),
                ),
                (
                    "refusal",
                    models.JSONField(
                        help_text="The error with which the change was refused or failed.",
                        null=True,
                        verbose_name="refusal",
                    ),
                ),
                (
                    "queued_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False, verbose_name="queued at"
                    ),
                ),
                ("decided_at", models.DateTimeField(editable=False, null=True, verbose_name="decided at")),
                (
                    "account",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="queued_changes",
                        to=f"{ACCOUNTS}.account",
                        verbose_name="account",
                    ),
                ),
                (
                    "target",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        help_text="The account that receives a transfer.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="queued_arrivals",
                        to=f"{ACCOUNTS}.account",
                        verbose_name="target",
                    ),
                ),
            ],
            options={
                "verbose_name": "queued change",
                "verbose_name_plural": "queued changes",
                "ordering": ["pk"],
                "abstract": False,
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(condition=models.Q(("state", "pending")), fields=["id"], name="queuedchange_pending")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("idempotency_key__isnull", False)),
                        fields=("account", "idempotency_key"),
                        name=f"{LABEL}_queuedchange_idempotency_key_once",
                    )
                ],
            },
        ),
    ]
