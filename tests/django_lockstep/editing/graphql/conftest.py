"""Programs of two users at the GraphQL API."""

from typing import Any

import pytest

from tests.django_lockstep.editing.graphql.asking import Asker
from tests.django_lockstep.editing.people import allow


@pytest.fixture
def editor(ada: Any) -> Asker:
    return Asker(allow(ada, "change_article", "change_author", "change_review"))


@pytest.fixture
def rival(bob: Any) -> Asker:
    return Asker(allow(bob, "change_article", "change_author", "change_review"))
