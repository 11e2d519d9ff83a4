"""Somebody's own accounts."""
