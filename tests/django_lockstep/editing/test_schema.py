"""The OpenAPI document keeps its word to customers and to staff, whatever is sent.

No error of the server, no answer that it does not declare, and nothing taken that it does not allow. ``schemathesis
run`` (schemathesis.toml) does the same with as many cases as one likes.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.cache import cache
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from accounts.models import Account
from django_lockstep.editing.api import api as editing_api
from django_lockstep.editing.tokens import issue
from tests.support.factories import UserFactory

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
FEW = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)


edit_locks = schemathesis.openapi.from_dict(editing_api.get_openapi_schema(path_prefix="/editing/api"))
edit_locks.app = WSGIHandler()


@pytest.fixture(autouse=True)
def _one_connection() -> Iterator[None]:
    """Keep the test's connection open between requests, as Django's own client does."""
    request_started.disconnect(close_old_connections)
    request_finished.disconnect(close_old_connections)
    cache.clear()
    yield
    request_started.connect(close_old_connections)
    request_finished.connect(close_old_connections)


@pytest.fixture(params=["customer", "staff"])
def user(request: pytest.FixtureRequest, account: Account) -> Any:
    return account.user if request.param == "customer" else UserFactory.create(is_staff=True, is_superuser=True)


@pytest.mark.django_db
@edit_locks.parametrize()
@FEW
def test_edit_locks(case: Any, user: Any, account: Account) -> None:
    parameters = case.path_parameters or {}
    if len(str(parameters.get("name"))) % 2:
        parameters["name"] = account._meta.label_lower  # half of them reach a table, and a record
        if "pk" in parameters:
            parameters["pk"] = str(account.pk)
    case.call_and_validate(headers={"Authorization": f"Bearer {issue(user)}"}, checks=CHECKS)
