"""URLs of the demo bank."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from accounts.api import account_api
from django_lockstep.editing.api import api as editing_api

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("lab/", include("django_lockstep.lab.urls")),
    path("api/", account_api().urls),
    path("editing/", include("django_lockstep.editing.urls")),
    path("editing/api/", editing_api.urls),
]
