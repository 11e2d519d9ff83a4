import django.db.models.deletion
from django.db import migrations, models

from django_lockstep.editing import AddEditGuard


class Migration(migrations.Migration):
    initial = True

    dependencies = [("lockstep_editing", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Author",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100, verbose_name="name")),
            ],
            options={"verbose_name": "author", "verbose_name_plural": "authors"},
        ),
        migrations.CreateModel(
            name="Article",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("title", models.CharField(max_length=100, verbose_name="title")),
                ("text", models.TextField(blank=True, verbose_name="text")),
                (
                    "author",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="articles",
                        to="bank.author",
                        verbose_name="author",
                    ),
                ),
            ],
            options={"verbose_name": "article", "verbose_name_plural": "articles"},
        ),
        AddEditGuard("Article"),
    ]
