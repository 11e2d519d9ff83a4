"""Accounts whose balance lies in many slots, so that many can write at the same time.

The model is `accounts.contrib.slotted.models.SlottedAccount`; the modules behind it may move.
"""
