"""A queue of changes in front of the accounts, applied in batches by consumers of their own: group commit.

The model is `accounts.contrib.queued.models.QueuedChange`, for accounts of one's own
`accounts.contrib.queued.abstract`.
"""
