"""Scenarios for ``manage.py explore``."""

from django_lockstep.lab.explorer import Scenario

from .spending import is_not_overdrawn, open_account, spend

spending = Scenario(set_up=open_account, actors=[spend, spend], invariant=is_not_overdrawn)
