"""A client that repeats a request gets the first one's response, whatever framework made it."""

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db.models.signals import post_save
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import Client
from django.urls import path
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI, Schema, Status
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.views import APIView

from django_lockstep.idempotency import idempotent_view
from django_lockstep.idempotency.models import IdempotencyKey
from tests.support.factories import UserFactory
from tests.support.sessions import Session
from tests.testapps.shop.models import Seat

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


@csrf_exempt
@idempotent_view()
def plain(request: HttpRequest) -> HttpResponse:
    seat = Seat.objects.create(guest=request.POST.get("guest", ""))
    status = int(request.GET.get("status", 201))
    response = JsonResponse({"seat": seat.pk}, status=status, headers={"Location": f"/seats/{seat.pk}"})
    response.set_cookie("seat", "one, two; three", httponly=True, samesite="Lax")
    response.set_cookie("row", str(seat.pk), max_age=60)
    return response


@csrf_exempt
@idempotent_view()
def page(request: HttpRequest) -> HttpResponse:
    template = engines["django"].from_string("Seat {{ seat.pk }}")
    return TemplateResponse(request, template, {"seat": Seat.objects.create()})


@csrf_exempt
@idempotent_view(required=True, scope=lambda request: request.headers["X-Client"])
def required(request: HttpRequest) -> HttpResponse:
    return HttpResponse(Seat.objects.create().pk)


@csrf_exempt
@idempotent_view()
def stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse([str(Seat.objects.create().pk)])


class Framework(APIView):  # type: ignore[misc]
    authentication_classes = ()

    @method_decorator(idempotent_view())
    def post(self, request: Any) -> Response:
        seat = Seat.objects.create(guest=request.data["guest"])
        return Response({"seat": seat.pk, "guest": seat.guest, "at": timezone.now()}, status=201)


@idempotent_view()
@api_view(["POST"])  # type: ignore[untyped-decorator]
def around(request: Any) -> Response:
    return Response({"seat": Seat.objects.create().pk, "at": timezone.now()}, status=201)


api = NinjaAPI(urls_namespace="idempotency")


class SeatOut(Schema):
    seat: int


@api.post("/status", response={201: SeatOut})
@idempotent_view()
def with_status(request: HttpRequest, guest: str) -> Status[SeatOut]:
    return Status(201, SeatOut(seat=Seat.objects.create(guest=guest).pk))


@api.post("/value")
@idempotent_view()
def value(request: HttpRequest, guest: str) -> dict[str, int]:
    return {"seat": Seat.objects.create(guest=guest).pk}


@api.post("/tuple", response={201: SeatOut})
@idempotent_view()
def with_tuple(request: HttpRequest) -> Any:
    return 201, {"seat": Seat.objects.create().pk}


urlpatterns = [
    path("plain", plain),
    path("page", page),
    path("required", required),
    path("stream", stream),
    path("framework", Framework.as_view()),
    path("around", around),
    path("api/", api.urls),
]
JSON = {"content_type": "application/json"}
REQUESTS: dict[str, tuple[Any, ...]] = {
    "plain": ("/plain", {"guest": "Eve"}, {}),
    "page": ("/page", {}, {}),
    "framework": ("/framework", '{"guest": "Eve"}', JSON),
    "around a framework's": ("/around", "{}", JSON),
    "ninja's status": ("/api/status?guest=Eve", "", JSON),
    "ninja's value": ("/api/value?guest=Eve", "", JSON),
}


def post(client: Client, url: str, data: Any = None, *, key: str = "a", **options: Any) -> Any:
    return client.post(url, {} if data is None else data, headers={"Idempotency-Key": key}, **options)


@pytest.mark.parametrize("name", list(REQUESTS))
def test_a_repetition_gets_the_first_response(client: Client, name: str) -> None:
    url, data, options = REQUESTS[name]
    first, second = (post(client, url, data, **options) for _ in range(2))
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert first.status_code in {200, 201}
    assert second.headers["Content-Type"] == first.headers["Content-Type"]
    assert post(client, url, data, key="b", **options).content != first.content
    assert Seat.objects.count() == 2


def test_it_says_so_and_keeps_headers_and_cookies(client: Client) -> None:
    first, second = (post(client, "/plain", key=key) for key in ('"a"', "a"))
    assert second.cookies.output() == first.cookies.output()
    assert "Idempotent-Replayed" not in first.headers
    assert (second.headers["Location"], second.headers["Idempotent-Replayed"]) == (first.headers["Location"], "true")


def test_without_a_key_each_request_is_its_own(client: Client) -> None:
    for _ in range(2):
        client.post("/plain")
        client.get("/plain", headers={"Idempotency-Key": "a"})
    assert (Seat.objects.count(), IdempotencyKey.objects.count()) == (4, 0)


def test_another_request_with_the_key_is_refused(client: Client) -> None:
    text = SimpleUploadedFile("names.txt", b"Eve")
    post(client, "/plain", {"guest": "Eve", "names": text})
    text.seek(0)
    assert post(client, "/plain", {"guest": "Eve", "names": text}).status_code == 201
    others: list[tuple[str, dict[str, Any]]] = [
        ("/plain", {"guest": "Ada"}),
        ("/plain?x=1", {"guest": "Eve"}),
        ("/page", {"guest": "Eve"}),
        ("/plain", {"guest": "Eve", "names": SimpleUploadedFile("names.txt", b"Ada")}),
    ]
    for url, data in others:
        refused = post(client, url, data)
        assert (refused.status_code, refused.headers["Content-Type"]) == (422, "application/problem+json")
    assert Seat.objects.count() == 1


def test_two_users_have_keys_of_their_own(client: Client) -> None:
    contents = {post(client, "/plain").content}
    for user in UserFactory.create_batch(2):
        client.force_login(user)
        contents |= {post(client, "/plain").content for _ in range(2)}
    assert len(contents) == 3


def test_a_key_can_be_required_and_belong_to_whom_the_view_says(client: Client) -> None:
    assert client.post("/required", headers={"X-Client": "1"}).status_code == 400
    assert post(client, "/plain", key="x" * 201).status_code == 400
    first, second, other = (
        client.post("/required", headers={"X-Client": name, "Idempotency-Key": "a"}).content for name in "112"
    )
    assert first == second != other


def test_a_refusal_is_not_kept_and_has_written_nothing(client: Client) -> None:
    assert post(client, "/plain?status=409").status_code == 409
    assert post(client, "/plain?status=503").status_code == 503
    assert not Seat.objects.exists()
    assert post(client, "/framework", "{", **JSON).status_code == 400
    assert post(client, "/framework", '{"guest": "Eve"}', **JSON).status_code == 201


def test_one_that_comes_while_the_first_is_at_work_is_told_to_come_again(client: Client, other: Session) -> None:
    second: list[int] = []

    def receive(sender: object, **kwargs: object) -> None:
        second.append(other.run(post, Client(), "/plain").status_code)

    post_save.connect(receive, Seat)
    try:
        assert post(client, "/plain").status_code == 201
    finally:
        post_save.disconnect(receive, Seat)
    assert second == [409]
    assert Seat.objects.count() == 1


def test_what_cannot_be_kept_is_refused(client: Client) -> None:
    with pytest.raises(TypeError, match="a streaming response cannot be kept"):
        post(client, "/stream")
    with pytest.raises(TypeError, match=r"return ninja\.Status"):
        post(client, "/api/tuple")
    assert not Seat.objects.exists()

    async def view(request: HttpRequest) -> None: ...

    for asynchronous in (view, sync_to_async(lambda request: None)):
        with pytest.raises(TypeError, match="cannot decorate the async view"):
            idempotent_view()(asynchronous)
