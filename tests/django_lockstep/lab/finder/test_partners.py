"""Requests and calls of different tests raced with each other, in a project of its own."""

from pathlib import Path

import pytest

from django_lockstep.lab.finder.findings import Finding, Findings
from tests.django_lockstep.lab.finder.test_plugin import FILES, Project, postgresql, verdicts

SETTINGS = f"""{FILES["settings.py"]}
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "cinema"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
ROOT_URLCONF = "cinema.urls"
"""
MODELS = """
from django.db import models

class Order(models.Model):
    status = models.CharField(max_length=20, default="open")
    note = models.CharField(max_length=20)

class Shipment(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)

class Refund(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)
"""
VIEWS = """
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from cinema.models import Order, Refund, Shipment

def approve(request, pk):
    with transaction.atomic():
        order = get_object_or_404(ORDERS, pk=pk)
        if order.status != "open":
            return HttpResponse(status=409)
        order.status = "approved"
        order.save()
        Shipment.objects.get_or_create(order=order)
    return HttpResponse()

def cancel(request, pk):
    with transaction.atomic():
        order = get_object_or_404(ORDERS, pk=pk)
        if order.status != "open":
            return HttpResponse(status=409)
        order.status = "cancelled"
        order.save()
        Refund.objects.get_or_create(order=order)
    return HttpResponse()

def annotate(request, pk):
    Order.objects.filter(pk=pk).update(note="urgent")
    return HttpResponse()

ORDERS = Order.objects.all()

urlpatterns = [
    path("orders/<int:pk>/note/", annotate),
    path("orders/<int:pk>/approve/", approve),
    path("orders/<int:pk>/cancel/", cancel),
]
"""
TESTS = """
from django.contrib.auth.models import User
from django.test import TestCase
from cinema.models import Order

class OrderTests(TestCase):
    others = 0

    def setUp(self):
        for _ in range(self.others):
            Order.objects.create(status="closed")
        self.order = Order.objects.create()

    def decided(self, path):
        assert self.client.post(path.format(self.order.pk)).status_code == 200
        self.order.refresh_from_db()
        return self.order.status

class ApproveTests(OrderTests):
    def test_approve(self):
        self.assertEqual(self.decided("/orders/{}/approve/"), "approved")

class NoteTests(OrderTests):
    def test_annotate(self):
        self.assertEqual(self.decided("/orders/{}/note/"), "open")

class CancelTests(OrderTests):
    others = 3

    def setUp(self):
        super().setUp()
        self.client.force_login(User.objects.create_user("customer"))

    def test_cancel(self):
        self.assertEqual(self.decided("/orders/{}/cancel/"), "cancelled")
"""
SERVICES = """
from django.db import transaction
from cinema.models import Order, Refund, Shipment

ORDERS = Order.objects.all()

@transaction.atomic
def approve(order):
    order = ORDERS.get(pk=order.pk)
    if order.status == "open":
        order.status = "approved"
        order.save(update_fields=["status"])
        Shipment.objects.get_or_create(pk=order.pk, order=order)
    return order

@transaction.atomic
def cancel(*, pks):
    for order in ORDERS.filter(pk__in=pks, status="open"):
        order.status = "cancelled"
        order.save(update_fields=["status"])
        Refund.objects.get_or_create(pk=order.pk, order=order)
    return order
"""
TESTS_OF_SERVICES = """
from django.test import TestCase
from cinema import services
from cinema.models import Order

class ApproveTests(TestCase):
    def test_approve(self):
        order = Order.objects.create()
        self.assertEqual(services.approve(order).status, "approved")

class CancelTests(TestCase):
    def test_cancel(self):
        Order.objects.create(status="closed")
        order = Order.objects.create()
        self.assertEqual(services.cancel(pks=[order.pk]).status, "cancelled")
"""
APPROVE, CANCEL = "POST orders/<int:pk>/approve/", "POST orders/<int:pk>/cancel/"


@pytest.fixture
def project(tmp_path: Path, db: None) -> Project:
    files = {"models.py": MODELS, "urls.py": VIEWS, "services.py": "", "test_services.py": TESTS}
    texts = {f"cinema/{name}": text for name, text in files.items()}
    return Project(tmp_path, postgresql(), **{"settings.py": SETTINGS, **texts})


def decided(project: Project, kind: str) -> dict[str, Finding]:
    """Return what became of the candidates on orders, by unit."""
    findings = Findings.on(project.folder / "races.jsonl").in_order()
    chosen = (it for it in findings if (it.candidate.table, it.candidate.kind) == ("cinema_order", kind))
    return {finding.candidate.unit: finding for finding in chosen}


def test_what_one_test_approves_another_one_cancels(project: Project) -> None:
    printed = project.pytest("--find-races", "--race-record=races.jsonl")
    by_unit = decided(project, "check-then-act")

    assert "3 passed" in printed, printed
    # Their save() writes back the note as it was; beside one another, that is not what goes wrong.
    whole = decided(project, "whole-row-write").values()
    assert [finding.verdict for finding in whole] == ["confirmed"] * 2, printed
    assert all("`POST orders/<int:pk>/note/`" in finding.pairing for finding in whole)
    assert by_unit.keys() == {APPROVE, CANCEL}, printed
    assert [finding.reason for finding in by_unit.values() if finding.verdict != "confirmed"] == [], printed
    # Together they are one finding; the other one is that each of them may be sent twice.
    partners = {f"`{APPROVE}` with `{CANCEL}` of another test", f"`{CANCEL}` with `{APPROVE}` of another test"}
    assert len(partners & {finding.pairing for finding in by_unit.values()}) == 1
    paths = {actor[3:] for finding in by_unit.values() if finding.partner_test for actor in finding.actors}
    assert paths == {"POST /orders/1/approve/", "POST /orders/1/cancel/"}

    for number, finding in enumerate(by_unit.values()):
        (project.folder / "cinema" / f"test_race_{number}.py").write_text(finding.test_file)
    again = project.pytest("-k", "does_not_race")
    assert "2 failed" in again, again
    assert verdicts(again) == ["broken", "broken"]
    assert "CancelTests" in "".join(finding.test_file for finding in by_unit.values())

    urls = project.folder / "cinema" / "urls.py"
    urls.write_text(urls.read_text().replace("Order.objects.all()", "Order.objects.select_for_update()"))
    assert "2 passed" in project.pytest("-k", "does_not_race")


def test_what_one_test_approves_a_call_of_another_one_cancels(project: Project) -> None:
    cinema = project.folder / "cinema"
    (cinema / "services.py").write_text(SERVICES)
    (cinema / "test_services.py").write_text(TESTS_OF_SERVICES)
    printed = project.pytest("--find-races", "--race-record=races.jsonl")
    by_unit = decided(project, "check-then-act")

    assert by_unit.keys() == {"cinema.services.approve", "cinema.services.cancel"}, printed
    moved = [finding for finding in by_unit.values() if finding.partner_call]
    assert [finding.verdict for finding in moved] == ["confirmed"] * 2, printed
    assert {actor[3:] for actor in moved[0].actors} == {f"{name}()" for name in by_unit}

    (cinema / "test_race.py").write_text(moved[0].test_file)
    assert verdicts(project.pytest("-k", "does_not_race")) == ["broken"]
    (cinema / "services.py").write_text(SERVICES.replace("Order.objects.all()", "Order.objects.select_for_update()"))
    assert "1 passed" in project.pytest("-k", "does_not_race")
