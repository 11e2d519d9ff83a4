from django.db import migrations

from tests.support.creating import creations


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = creations("reports")
