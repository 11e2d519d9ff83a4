"""URLs of the demo bank."""

from importlib.util import find_spec

from django.conf import settings
from django.contrib import admin
from django.shortcuts import redirect
from django.templatetags.static import static
from django.urls import include, path, re_path
from django.utils.translation import gettext_lazy as _

from bank.arena import arena, download, lanes
from bank.front import front
from bank.front import progress as front_progress
from bank.login import log_in_as_admin
from bank.overdrafts import overdrafts
from bank.waits import make_one_wait
from django_lockstep.editing.api import api as editing_api

admin.site.site_title = _("Bank")
admin.site.site_header = _("Bank, the demo of django-lockstep")
admin.site.index_title = _("Accounts, leases and edit locks")

urlpatterns = [
    path("", front, name="front"),
    path("front/progress/", front_progress, name="front-progress"),
    path("favicon.ico", lambda request: redirect(static("bank/icon.svg"))),
    path("admin/", admin.site.urls),
    path("lab/", include("django_lockstep.lab.urls")),
    path("api/", include("bank.api")),
    path("editing/", include("django_lockstep.editing.urls")),
    path("editing/api/", editing_api.urls),
    path("arena/", arena, name="arena"),
    path("arena/lanes/", lanes, name="arena-lanes"),
    re_path(r"^arena/arena\.(?P<form>json|svg)$", download, name="arena-download"),
    path("overdrafts/", overdrafts, name="overdrafts"),
]
# By a setting that nothing changes later: addresses are made once for a process.
if settings.BANK_DEMO:
    urlpatterns += [
        path("login/", log_in_as_admin, name="demo-login"),
        path("waits/", make_one_wait, name="demo-waits"),
    ]
# The extra `graphql`, which the demo does without.
if find_spec("strawberry_django"):
    urlpatterns += [path("editing/graphql/", include("django_lockstep.editing.graphql.urls"))]
