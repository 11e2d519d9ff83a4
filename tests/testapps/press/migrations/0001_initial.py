from django.conf import settings
from django.db import migrations

from tests.support.creating import creations


class Migration(migrations.Migration):
    initial = True

    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = creations("press")
