"""URL of the GraphQL API: ``path("editing/graphql/", include("django_lockstep.editing.graphql.urls"))``."""

from django.urls import path

from django_lockstep.editing.graphql.views import graphql

app_name = "lockstep_editing_graphql"
urlpatterns = [path("", graphql, name="graphql")]
