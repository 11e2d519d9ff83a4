"""The pages, as a project tests them: what each one does, and what it refuses; nothing at the same time."""

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from .. import correct, racing
from .. import models as club

pytestmark = pytest.mark.django_db
Send = Callable[..., int]


@pytest.fixture(params=["racing", "correct"])
def pages(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def post(pages: str, client: Client) -> Send:
    """Send a POST to a page, and return the status."""

    def send(page: str, *keys: int, **data: Any) -> int:
        return client.post(f"/{pages}/{page}/{''.join(f'{key}/' for key in keys)}", data).status_code

    return send


def test_a_seat_has_one_guest(post: Send) -> None:
    seat = club.Seat.objects.create()
    assert [post("book", seat.pk, guest=name) for name in ("ada", "bob")] == [200, 409]


def test_a_code_is_used_once(post: Send) -> None:
    code = club.Code.objects.create()
    assert [post("exchange", code.pk), post("exchange", code.pk)] == [201, 409]
    assert club.Access.objects.count() == 1


def test_a_member_registers(post: Send) -> None:
    assert [post("register", email="ada@example.org"), post("register", email="ada@example.org")] == [201, 409]


def test_a_stock_is_allocated(post: Send) -> None:
    stock, orders = club.Stock.objects.create(), [club.Order.objects.create() for _ in range(2)]
    assert [post("allocate", order.pk, stock.pk) for order in orders] == [201, 409]


def test_a_court_is_reserved(post: Send) -> None:
    court = club.Court.objects.create()
    assert [post("reserve", court.pk), post("reserve", court.pk)] == [201, 409]


@pytest.mark.parametrize("views", [racing, correct])
def test_an_order_is_shipped(views: ModuleType) -> None:
    order = club.Order.objects.create()
    assert views.ship(order)
    assert club.Parcel.objects.count() == 1


def test_a_voucher_is_handed_out(post: Send) -> None:
    club.Voucher.objects.create(number="4711")
    assert [post("hand_out"), post("hand_out")] == [200, 409]


@pytest.mark.parametrize("step", [1, -1])
def test_stocks_are_taken_out(pages: str, client: Client, step: int) -> None:
    stocks = [club.Stock.objects.create(number=5).pk for _ in range(2)]
    client.post(f"/{pages}/take_out/", json.dumps(stocks[::step]), content_type="application/json")
    assert club.Stock.objects.filter(number=4).count() == 2


def test_a_schedule_is_disabled(post: Send) -> None:
    assert post("disable", club.Schedule.objects.create().pk) == 200
    assert not club.Schedule.objects.get().enabled


def test_a_schedule_is_renamed(post: Send) -> None:
    assert post("rename", club.Schedule.objects.create().pk, label="daily") == 200
    assert club.Schedule.objects.get().label == "daily"


def test_a_project_is_finished(post: Send) -> None:
    assert post("finish", club.Project.objects.create().pk) == 200
    assert club.Project.objects.get().finished


def test_a_project_is_dropped(post: Send) -> None:
    project = club.Project.objects.create()
    assert [post("drop", project.pk), post("drop", project.pk)] == [200, 404]


def test_a_report_is_made(post: Send) -> None:
    assert post("report", title="June") == 201


def test_a_ticket_is_sold(post: Send) -> None:
    ticket = club.Ticket.objects.create()
    assert [post("sell", ticket.pk), post("sell", ticket.pk)] == [201, 409]


def test_points_are_collected(post: Send) -> None:
    assert post("collect", club.GoldCard.objects.create().pk) == 200
    assert club.GoldCard.objects.get().points == 5


def test_a_line_is_added(post: Send) -> None:
    assert post("add_line", club.Basket.objects.create().pk) == 201


def test_a_basket_is_checked_out(post: Send) -> None:
    basket = club.Basket.objects.create()
    assert [post("add_line", basket.pk), post("check_out", basket.pk), post("add_line", basket.pk)] == [201, 200, 409]
    assert club.Basket.objects.get().total == 7


def test_the_newest_notice(pages: str, client: Client, post: Send) -> None:
    assert client.get(f"/{pages}/newest/").status_code == 409
    notice = club.Notice.objects.create(text="closed on Monday")
    assert client.get(f"/{pages}/newest/").content == b"closed on Monday"
    assert post("withdraw_notice", notice.pk) == 200


def test_a_job_is_started(post: Send) -> None:
    job = club.Job.objects.create()
    assert [post("start", job.pk), post("start", job.pk)] == [200, 409]


def test_a_task_is_claimed(post: Send) -> None:
    club.Task.objects.create()
    assert [post("claim", worker="ada"), post("claim", worker="bob")] == [200, 409]


def test_a_guest_joins(post: Send) -> None:
    assert post("join", club.Event.objects.create().pk, name="ada") == 201


def test_a_coupon_is_redeemed(post: Send, client: Client) -> None:
    coupon = club.Coupon.objects.create()
    client.force_login(User.objects.create_user("ada"))
    assert post("redeem", coupon.pk) == 201


def test_an_admin_stays(post: Send) -> None:
    admins = [club.Member.objects.create(email=f"{name}@example.org", admin=True).pk for name in ("ada", "bob")]
    assert [post("dismiss", pk) for pk in admins] == [200, 409]
