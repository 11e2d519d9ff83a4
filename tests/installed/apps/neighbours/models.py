"""Versioned models that other packages have their hands in, and one that is django-concurrency's alone."""

import pgtrigger
from concurrency.fields import IntegerVersionField
from django.db import models
from django_fsm import ConcurrentTransitionMixin, FSMField, transition
from simple_history.models import HistoricalRecords  # type: ignore[import-untyped]

from django_lockstep.locking import VersionedModel


class Contract(VersionedModel):
    """Every version of it is kept by django-simple-history."""

    title = models.CharField(max_length=50)
    history = HistoricalRecords()


class Parcel(ConcurrentTransitionMixin, VersionedModel):
    """Its state is changed by transitions of django-fsm-2."""

    state = FSMField(default="packed", protected=True)
    note = models.CharField(max_length=50, blank=True)

    @transition(field=state, source="packed", target="sent")
    def send(self) -> None: ...

    @transition(field=state, source="packed", target="lost")
    def lose(self) -> None: ...


class Badge(VersionedModel):
    """Its slug is made by a trigger, and its rows are kept from deletion by another, both of django-pgtrigger."""

    name = models.CharField(max_length=50)
    slug = models.CharField(max_length=50, blank=True)

    class Meta:
        triggers = [
            pgtrigger.Trigger(
                name="slug",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert | pgtrigger.Update,
                func="NEW.slug = lower(NEW.name); RETURN NEW;",
            ),
            pgtrigger.Protect(name="keep", operation=pgtrigger.Delete),
        ]


class Memo(models.Model):
    """What django-concurrency protects on its own."""

    version = IntegerVersionField()
    text = models.CharField(max_length=50)

    objects: "models.Manager[Memo]" = models.Manager()
