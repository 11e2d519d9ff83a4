"""Both sets of pages, side by side."""

from types import ModuleType
from typing import Any

from django.urls import include, path

from . import correct, racing


def addresses(views: ModuleType) -> Any:
    """Return the addresses of one set."""
    by_row = (
        views.book, views.exchange, views.reserve, views.disable, views.rename, views.finish, views.drop, views.sell,
        views.collect, views.add_line, views.check_out, views.withdraw_notice, views.start, views.join, views.redeem,
        views.dismiss,
    )  # fmt: skip
    others = (views.register, views.hand_out, views.take_out, views.report, views.newest, views.claim)
    return include(
        [
            *(path(f"{view.__name__}/<int:pk>/", view) for view in by_row),
            *(path(f"{view.__name__}/", view) for view in others),
            path("allocate/<int:order>/<int:stock>/", views.allocate),
        ]
    )


urlpatterns = [path("racing/", addresses(racing)), path("correct/", addresses(correct))]
