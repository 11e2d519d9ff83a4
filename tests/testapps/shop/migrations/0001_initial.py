from django.db import migrations

from django_lockstep.locking import AddVersionGuard
from tests.support.creating import creations

GUARDED = ("Seat", "StampedSeat", "BoxSeat", "Stage", "UuidSeat", "OddSeat", "Locker", "Turnstile", "Order", "Poster")


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [*creations("shop"), *(AddVersionGuard(name) for name in GUARDED)]
