"""An ASGI application of a project with a pool of twenty connections, on the database of a test."""

import os

from django.conf import settings
from django.core.asgi import get_asgi_application

_DATABASE = settings.DATABASES["default"]
_DATABASE["NAME"] = os.environ["TESTED_DATABASE"]
_DATABASE["OPTIONS"] = {**_DATABASE.get("OPTIONS", {}), "pool": {"min_size": 1, "max_size": 20}}
settings.ROOT_URLCONF = __name__

application = get_asgi_application()

from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402

from accounts.models import Account  # noqa: E402


async def deposit(request: HttpRequest, pk: int) -> JsonResponse:
    account = await Account.adeposit(pk, 1)
    return JsonResponse({"version": account.version})


urlpatterns = [path("<int:pk>/", deposit)]
