from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Lock",
            fields=[
                ("pid", models.IntegerField(primary_key=True, serialize=False)),
            ],
            options={
                "verbose_name": "lock",
                "verbose_name_plural": "locks: who waits for whom",
                "managed": False,
                "default_permissions": ("view",),
                "permissions": (("end_session", "Can cancel statements and terminate sessions"),),
            },
        ),
    ]
