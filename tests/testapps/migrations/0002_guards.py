from django.db import migrations

from accounts.operations import AppendOnly
from django_lockstep.editing import AddEditGuard
from django_lockstep.locking import AddVersionGuard

VERSIONED = {
    "press": ["Article", "LongRead"],
    "purses": ["Purse"],
    "shop": [
        "Seat", "StampedSeat", "BoxSeat", "Stage", "UuidSeat", "OddSeat", "PairSeat", "Locker", "Turnstile", "Order",
        "Poster",
    ],
}  # fmt: skip
OTHERS = {"press": [AddEditGuard("Review"), AddEditGuard("Cell")], "purses": [AppendOnly("PurseEntry")]}


class Migration(migrations.Migration):
    """The triggers of each app, if it has any."""

    def __init__(self, name, app_label):
        super().__init__(name, app_label)
        self.dependencies = [(app_label, "0001_initial")]
        if app_label == "press":
            self.dependencies.append(("lockstep_editing", "0001_initial"))
        self.operations = [*map(AddVersionGuard, VERSIONED.get(app_label, [])), *OTHERS.get(app_label, [])]
