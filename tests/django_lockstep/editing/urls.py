"""URLs of a project that uses every face of editing."""

from importlib.util import find_spec

from django.urls import include, path

from django_lockstep.editing.api import api
from tests.django_lockstep.editing.site import site

urlpatterns = [
    path("admin/", site.urls),
    path("editing/", include("django_lockstep.editing.urls")),
    path("editing/api/", api.urls),
    # Tests of the GraphQL API are of those that need more than requirements.txt.
    *(
        [path("editing/graphql/", include("django_lockstep.editing.graphql.urls"))]
        if find_spec("strawberry_django")
        else []
    ),
]
