"""Pages of the lab: ``path("lab/", include("django_lockstep.lab.urls"))``."""

from django.urls import path

from django_lockstep.lab import anomaly_views, found_views, views

app_name = "lockstep_lab"

urlpatterns = [
    path("", views.races, name="races"),
    # Before the races, whose names may have slashes.
    path("anomalies/", anomaly_views.anomalies, name="anomalies"),
    path("anomalies/<str:anomaly>/<str:kind>/<str:column>/", anomaly_views.anomaly, name="anomaly"),
    path("found/", found_views.found_races, name="found"),
    path("<path:name>/", views.race, name="race"),
]
