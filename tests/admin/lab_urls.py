"""The bank with the lab's pages."""

from typing import Any

from django.http import HttpResponse
from django.urls import include, path

from bank.urls import urlpatterns as bank

lab = [path("", lambda request: HttpResponse("lab"), name="index")]

others: Any = bank
urlpatterns = [*(it for it in others if str(it.pattern) != "lab/"), path("lab/", include((lab, "lab")))]
