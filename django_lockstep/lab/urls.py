"""Pages of the lab: ``path("lab/", include("django_lockstep.lab.urls"))``."""

from django.urls import path

from django_lockstep.lab.pages import found, views

app_name = "lockstep_lab"

urlpatterns = [
    path("", views.races, name="races"),
    # Before the races, whose names may have slashes.
    path("anomalies/", views.anomalies, name="anomalies"),
    path("found/", found.found_races, name="found"),
    path("found/report.<str:form>", found.found_report, name="found_report"),
    path("found/<str:candidate>.<str:form>", found.found_file, name="found_file"),
    path("runs/", views.start, name="start"),
    path("runs/progress/", views.progress, name="progress"),
    path("runs/stop/", views.stop, name="stop"),
    path("<path:name>/report.<str:form>", views.report, name="report"),
    path("<path:name>/<str:schedule>.<str:form>", views.schedule, name="schedule"),
    path("<path:name>/", views.race, name="race"),
]
