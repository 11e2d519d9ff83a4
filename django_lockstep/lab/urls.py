"""Pages of the lab: ``path("lab/", include("django_lockstep.lab.urls"))``."""

from django.urls import path

from django_lockstep.lab import views

app_name = "lockstep_lab"

urlpatterns = [
    path("", views.races, name="races"),
    path("<path:name>/", views.race, name="race"),
]
