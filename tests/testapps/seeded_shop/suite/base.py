"""What the shop's test cases have in common."""

from typing import Any

from django.apps import apps
from django.contrib.auth.models import User
from django.test import TestCase
from django.urls import reverse


class ShopTestCase(TestCase):
    """Tests of one app, whose label is ``shop``, by a customer who is logged in."""

    shop = "racing"
    customer: User

    @classmethod
    def setUpTestData(cls) -> None:
        cls.customer = User.objects.create_user("customer", password="secret")

    def setUp(self) -> None:
        self.client.login(username="customer", password="secret")

    def objects(self, model: str) -> Any:
        return apps.get_model(self.shop, model)._default_manager

    def url(self, name: str, *args: object) -> str:
        return reverse(f"{self.shop}:{name}", args=args)
