"""The lease that most tests of leases are about."""

import pytest

from django_lockstep.leases import LeaseHandle
from tests.django_lockstep.leases.holding import acquired


@pytest.fixture
def handle(transactional_db: None) -> LeaseHandle:
    return acquired()
