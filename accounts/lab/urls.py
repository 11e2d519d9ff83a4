"""Pages of the lab: ``path("lab/", include("accounts.lab.urls"))``."""

from django.urls import path

from accounts.lab import views

app_name = "accounts_lab"

urlpatterns = [
    path("", views.races, name="races"),
    path("<path:name>/", views.race, name="race"),
]
