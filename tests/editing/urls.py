"""URLs of a project that uses every face of editing."""

from django.urls import include, path

from accounts.editing.api import api
from tests.editing.site import site

urlpatterns = [
    path("admin/", site.urls),
    path("editing/", include("accounts.editing.urls")),
    path("editing/api/", api.urls),
]
