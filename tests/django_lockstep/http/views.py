"""Views of somebody who uses the conditional requests, in four frameworks' ways."""

import json
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from ninja import NinjaAPI
from rest_framework import serializers
from rest_framework.generics import RetrieveUpdateDestroyAPIView
from rest_framework.permissions import IsAdminUser
from rest_framework.response import Response
from rest_framework.views import APIView

from django_lockstep.http import etag, require_if_match, require_match, seen_elsewhere
from django_lockstep.http.drf import IfMatchMixin, problem_handler
from django_lockstep.http.ninja import answer_with_problems
from tests.testapps.shop.models import OddSeat, Seat


def find(request: HttpRequest, pk: Any) -> Seat | None:
    return Seat.objects.filter(pk=pk).first()


def body(seat: Seat) -> dict[str, Any]:
    return {"guest": seat.guest, "version": seat.version}


def write(request: Any) -> Seat:
    seat: Seat = request.matched
    seat.guest = json.loads(request.body)["guest"]
    seat.save()
    return seat


@require_if_match(find)
def plain(request: Any, pk: int) -> HttpResponse:
    if request.method == "DELETE":
        request.matched.delete()
        return HttpResponse(status=204)
    if request.method in {"PUT", "PATCH"} and request.matched is not None:
        write(request)
    if request.method == "PUT" and request.matched is None:
        request.matched = Seat(pk=pk, guest=json.loads(request.body)["guest"])
        request.matched.save(force_insert=True)
        return JsonResponse(body(request.matched), status=201)
    return JsonResponse(body(request.matched) if request.matched else {}, status=200 if request.matched else 404)


@require_if_match(find)
async def plain_async(request: Any, pk: int) -> HttpResponse:
    request.matched.guest = json.loads(request.body)["guest"]
    await request.matched.asave()
    return JsonResponse(body(request.matched))


class AsyncClassBased(View):
    async def put(self, request: Any, pk: int) -> HttpResponse:
        return await plain_async.__wrapped__(request, pk)  # type: ignore[attr-defined,no-any-return]


@method_decorator(require_if_match(find), name="dispatch")
class ClassBased(View):
    def get(self, request: Any, pk: int) -> HttpResponse:
        return JsonResponse(body(request.matched))

    def put(self, request: Any, pk: int) -> HttpResponse:
        return JsonResponse(body(write(request)))


@method_decorator(require_if_match(find), name="dispatch")
class Rest(APIView):  # type: ignore[misc]
    authentication_classes = ()
    permission_classes = ()

    def get(self, request: Any, pk: int) -> Response:
        return Response(body(request.matched))

    def put(self, request: Any, pk: int) -> Response:
        request.matched.guest = request.data["guest"]
        request.matched.save()
        return Response(body(request.matched))


class RestWithProblems(Rest):
    def get_exception_handler(self) -> Any:
        return problem_handler


class RestCareless(RestWithProblems):
    def put(self, request: Any, pk: int) -> Response:
        """Meet a conflict of another row than the matched one."""
        elsewhere = Seat.objects.create()
        Seat.objects.filter(pk=elsewhere.pk).update(guest="somebody else")
        elsewhere.save()
        return Response({})


class SeatSerializer(serializers.ModelSerializer):  # type: ignore[misc]
    class Meta:
        model = Seat
        fields = ["guest", "version"]


class Generic(IfMatchMixin, RetrieveUpdateDestroyAPIView):  # type: ignore[misc]
    authentication_classes = ()
    permission_classes: tuple[Any, ...] = ()
    queryset = Seat.objects.all()
    serializer_class = SeatSerializer


class GenericWithProblems(Generic):
    def get_exception_handler(self) -> Any:
        return problem_handler


class GenericCareless(Generic):
    def perform_update(self, serializer: Any) -> None:
        """Let the row change between the check and the write."""
        OddSeat.objects.create(code="before")
        Seat.objects.filter(pk=self.matched.pk).update(guest="somebody else")
        serializer.save()


class GenericForStaff(Generic):
    permission_classes = (IsAdminUser,)


@require_if_match(find)
def careless(request: Any, pk: int) -> HttpResponse:
    """Write something else before the conflict is met."""
    OddSeat.objects.create(code="before")
    Seat.objects.filter(pk=pk).update(guest="somebody else")
    return JsonResponse(body(write(request)))


api = NinjaAPI(urls_namespace="seats")
answer_with_problems(api)


@api.put("/seats/{pk}")
def put_seat(request: Any, response: HttpResponse, pk: int) -> dict[str, Any]:
    seat = Seat.objects.get(pk=pk)
    require_match(request, seat)
    seat.guest = json.loads(request.body)["guest"]
    with seen_elsewhere(seat):
        seat.save()
    response["ETag"] = etag(seat)
    return body(seat)


urlpatterns = [
    path("plain/<int:pk>", plain),
    path("async/<int:pk>", plain_async),
    path("async-class/<int:pk>", require_if_match(find)(AsyncClassBased.as_view())),
    path("class/<int:pk>", ClassBased.as_view()),
    path("rest/<int:pk>", Rest.as_view()),
    path("problems/<int:pk>", RestWithProblems.as_view()),
    path("elsewhere/<int:pk>", RestCareless.as_view()),
    path("careless/<int:pk>", careless),
    path("generic/<int:pk>", Generic.as_view()),
    path("generic/problems/<int:pk>", GenericWithProblems.as_view()),
    path("generic/careless/<int:pk>", GenericCareless.as_view()),
    path("generic/staff/<int:pk>", GenericForStaff.as_view()),
    path("ninja/", api.urls),
]
