"""Accounts whose tables and columns have names of their own."""
