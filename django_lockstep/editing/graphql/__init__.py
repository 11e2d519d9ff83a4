"""The GraphQL API of edit locks (extra ``graphql``): ``path("editing/graphql/", include("....graphql.urls"))``.

Users, permissions, tokens, limits and errors are those of the HTTP API, see `django_lockstep.editing.requests`. A
check-out that is refused is a result with ``lock_result`` false, and says who is in the way. Everything else that fails
is an error, with problem details in its ``extensions``.
"""
