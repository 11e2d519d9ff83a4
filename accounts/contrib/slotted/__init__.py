"""Accounts whose balance is split into many rows, so that many sessions can write at the same time.

The model is `accounts.contrib.slotted.models.SlottedAccount`; the other modules are private.
"""
