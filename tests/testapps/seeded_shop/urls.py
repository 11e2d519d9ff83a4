"""Both shops side by side."""

from django.urls import include, path

from . import correct, racing

urlpatterns = [
    path("racing/", include(f"{racing.__name__}.urls")),
    path("correct/", include(f"{correct.__name__}.urls")),
]
