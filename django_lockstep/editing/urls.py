"""URLs of the status page: ``path("editing/", include("django_lockstep.editing.urls"))``."""

from django.urls import path

from django_lockstep.editing.views import status_page

app_name = "lockstep_editing"
urlpatterns = [path("", status_page, name="status")]
