"""Accounts whose concurrent changes are right, and the locking tools to make any model's so."""
