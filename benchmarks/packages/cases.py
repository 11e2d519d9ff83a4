"""The races: calls as projects make them, and the results that each package's documentation promises.

Packages are imported inside the cases, because not all of them need to be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.test import RequestFactory
from django.utils import timezone

from django_lockstep.lab.explorer import Scenario

__all__ = ["CASES", "Case"]

Results = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One race of a package's code."""

    name: str
    package: str
    """The package's name on the index."""
    module: str
    """The module by which it is detected."""
    build: Callable[[], Scenario]

    @property
    def installed(self) -> bool:
        """Whether its package is installed."""
        return find_spec(self.module) is not None


def _one_succeeds(made: Any, results: Results, errors: Results) -> bool:
    return sum(bool(result) for result in results.values()) == 1


def _user() -> Any:
    return get_user_model().objects.create_user("someone", password="secret")  # noqa: S106 - of nobody


def _claim(workers: int) -> Scenario:
    from django_tasks_db.compat import task_backends
    from django_tasks_db.models import DBTaskResult

    def set_up() -> None:
        backend = task_backends["default"]
        DBTaskResult.objects.create(
            args_kwargs={"args": [], "kwargs": {}},
            task_path="benchmarks.packages.cases.nothing",
            backend_name=backend.alias,
            run_after=timezone.now() - timedelta(minutes=1),
        )

    def claim(made: None) -> bool:
        with transaction.atomic():
            task = DBTaskResult.objects.ready().get_locked()
            if task is not None:
                task.claim("worker")
        return task is not None

    return Scenario(set_up=set_up, actors=[claim] * workers, invariant=_one_succeeds)


def _queueing_lock() -> Scenario:
    from procrastinate.contrib.django import app
    from procrastinate.contrib.django.models import ProcrastinateJob
    from procrastinate.exceptions import AlreadyEnqueued

    def defer(made: None) -> bool:
        try:
            app.configure_task("report", queueing_lock="report").defer()
        except AlreadyEnqueued:
            return False
        return True

    def once(made: None, results: Results, errors: Results) -> bool:
        return _one_succeeds(made, results, errors) and ProcrastinateJob.objects.count() == 1

    return Scenario(set_up=lambda: None, actors=[defer, defer], invariant=once)


def _add_child() -> Scenario:
    from benchmarks.packages.models import Category

    def set_up() -> Any:
        return Category.add_root(name="root").pk

    def add(root: Any) -> None:
        with transaction.atomic():
            Category.objects.get(pk=root).add_child(name="child")

    def sound(root: Any, results: Results, errors: Results) -> bool:
        children = Category.objects.get(pk=root).get_children().count()
        return (
            not errors and children == 2 == Category.objects.get(pk=root).numchild and not any(Category.find_problems())
        )

    return Scenario(set_up=set_up, actors=[add, add], invariant=sound)


def _failure_count() -> Scenario:
    from axes.handlers.database import AxesDatabaseHandler
    from axes.models import AccessAttempt

    def fail(made: None) -> None:
        request: Any = RequestFactory().post("/login/", {"username": "someone"})
        request.axes_ip_address, request.axes_user_agent = "192.0.2.1", "browser"
        request.axes_path_info, request.axes_http_accept = "/login/", "text/html"
        request.axes_attempt_time, request.axes_locked_out = timezone.now(), False
        AxesDatabaseHandler().user_login_failed(None, {"username": "someone"}, request)

    def counted(made: None, results: Results, errors: Results) -> bool:
        failures = AccessAttempt.objects.values_list("failures_since_start", flat=True)
        return bool(sum(failures) == 2)

    return Scenario(set_up=lambda: None, actors=[fail, fail], invariant=counted)


def _verify_token() -> Scenario:
    from django_otp.plugins.otp_static.models import StaticDevice

    def set_up() -> Any:
        device = StaticDevice.objects.create(user=_user(), name="codes")
        device.token_set.create(token="once")  # noqa: S106 - for one race
        return device.pk

    def verify(pk: Any) -> bool:
        return bool(StaticDevice.objects.get(pk=pk).verify_token("once"))

    return Scenario(set_up=set_up, actors=[verify, verify], invariant=_one_succeeds)


def _rotating_refresh() -> Scenario:
    from rest_framework_simplejwt.exceptions import TokenError
    from rest_framework_simplejwt.serializers import TokenRefreshSerializer
    from rest_framework_simplejwt.tokens import RefreshToken

    def refresh(token: str) -> bool:
        try:
            return bool(TokenRefreshSerializer(data={"refresh": token}).is_valid(raise_exception=True))
        except TokenError:
            return False

    return Scenario(
        set_up=lambda: str(RefreshToken.for_user(_user())), actors=[refresh, refresh], invariant=_one_succeeds
    )


def _token_view() -> Scenario:
    from oauth2_provider.models import get_access_token_model, get_application_model, get_refresh_token_model
    from oauth2_provider.views import TokenView

    def set_up() -> str:
        user = _user()
        application = get_application_model().objects.create(
            name="app", user=user, client_id="app", client_type="public", authorization_grant_type="password"
        )
        until = timezone.now() + timedelta(hours=1)
        access = get_access_token_model().objects.create(
            user=user, application=application, token="a" * 8, expires=until, scope="read"
        )
        get_refresh_token_model().objects.create(user=user, application=application, token="r" * 8, access_token=access)
        return "r" * 8

    def exchange(token: str) -> bool:
        sent = {"grant_type": "refresh_token", "refresh_token": token, "client_id": "app"}
        return bool(TokenView.as_view()(RequestFactory().post("/token/", sent)).status_code == 200)

    return Scenario(set_up=set_up, actors=[exchange, exchange], invariant=_one_succeeds)


CASES = tuple(
    Case(*each)
    for each in (
        ("tasks-db:claim", "django-tasks-db", "django_tasks_db", lambda: _claim(2)),
        ("tasks-db:claim-by-three", "django-tasks-db", "django_tasks_db", lambda: _claim(3)),
        ("procrastinate:queueing-lock", "procrastinate", "procrastinate", _queueing_lock),
        ("treebeard:add-child", "django-treebeard", "treebeard", _add_child),
        ("axes:failure-count", "django-axes", "axes", _failure_count),
        ("otp:verify-token", "django-otp", "django_otp", _verify_token),
        ("simplejwt:rotating-refresh", "djangorestframework-simplejwt", "rest_framework_simplejwt", _rotating_refresh),
        ("oauth-toolkit:token-view", "django-oauth-toolkit", "oauth2_provider", _token_view),
    )
)
"""Every case, whether its package is installed or not."""
