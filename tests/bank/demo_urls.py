"""The addresses that `manage.py demo` has in addition."""

from django.urls import path

from bank.login import log_in_as_admin
from bank.urls import urlpatterns as others
from bank.waits import make_one_wait

urlpatterns = [
    *others,
    path("login/", log_in_as_admin, name="demo-login"),
    path("waits/", make_one_wait, name="demo-waits"),
]
