"""The race lab: runs and measures concurrent code on a real PostgreSQL. It knows callables and SQL, not accounts."""

from importlib.util import find_spec

# Two distributions fill the package `django_lockstep`. pip installs both, unless it was told to leave dependencies out.
if find_spec("django_lockstep.errors") is None:
    raise ImportError("django-lockstep-lab needs django-lockstep, which is not installed: pip install django-lockstep")
