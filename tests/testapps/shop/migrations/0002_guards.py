from django.db import migrations

from django_lockstep.locking.triggers import AddVersionGuard


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]

    operations = [AddVersionGuard(name) for name in ("Seat", "StampedSeat", "BoxSeat", "Stage", "UuidSeat", "OddSeat")]
