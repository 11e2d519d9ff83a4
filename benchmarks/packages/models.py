"""The models that the packages' cases need from a project: a tree."""

from importlib.util import find_spec

from django.db import models

if find_spec("treebeard") is not None:
    from treebeard.mp_tree import MP_Node

    class Category(MP_Node):  # type: ignore[misc]
        """A node of a tree."""

        name = models.CharField(max_length=50)

        class Meta:
            app_label = "packages"
