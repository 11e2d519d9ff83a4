"""The error of clusters."""

from django_lockstep.errors import LockstepError


class ClusterUnavailable(LockstepError):
    """The cluster, or one of its workers, cannot do the work."""
