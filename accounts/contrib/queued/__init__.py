"""A queue of changes in front of the accounts, applied in batches by separate consumer processes: group commit.

The model is `accounts.contrib.queued.models.QueuedChange`; `accounts.contrib.queued.abstract` has the base class for
other account models.
"""
