"""URLs of the status page: ``path("editing/", include("accounts.editing.urls"))``."""

from django.urls import path

from accounts.editing.views import status_page

app_name = "editing"
urlpatterns = [path("", status_page, name="status")]
