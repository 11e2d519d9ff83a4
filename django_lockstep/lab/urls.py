"""Pages of the lab: ``path("lab/", include("django_lockstep.lab.urls"))``."""

from django.urls import path

from django_lockstep.lab import anomaly_views, found_views, live_views, views

app_name = "lockstep_lab"

urlpatterns = [
    path("", views.races, name="races"),
    # Before the races, whose names may have slashes.
    path("anomalies/", anomaly_views.anomalies, name="anomalies"),
    path("anomalies/<str:anomaly>/<str:kind>/<str:column>/", anomaly_views.anomaly, name="anomaly"),
    path("found/", found_views.found_races, name="found"),
    path("found/report.<str:form>", found_views.found_report, name="found_report"),
    path("found/<str:candidate>.<str:form>", found_views.found_file, name="found_file"),
    path("runs/", live_views.start, name="start"),
    path("runs/progress/", live_views.progress, name="progress"),
    path("runs/stop/", live_views.stop, name="stop"),
    path("<path:name>/report.<str:form>", views.report, name="report"),
    path("<path:name>/", views.race, name="race"),
]
