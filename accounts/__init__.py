"""Accounts whose concurrent changes are right: the showcase of django-lockstep."""
