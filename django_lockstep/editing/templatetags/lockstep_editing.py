"""The filter of the edit locks' own templates."""

from django import template

from django_lockstep.editing.clock import time_with_day

register = template.Library()
register.filter("time_with_day", time_with_day)
