"""The base of migration operations for what Django's models cannot express about their tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Model


class TableOperation(Operation):
    """Installs something for a model's table on PostgreSQL; does nothing on other databases. Reversible."""

    reversible = True
    fragment: ClassVar[str]
    """The end of an automatic migration name, after the model's."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def install(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> None:
        """Create what the operation installs, or replace it where it is there already."""
        raise NotImplementedError

    def remove(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> None:
        """Drop what `install` creates, if it is there."""
        raise NotImplementedError

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: it is not part of a model's state."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        self._change(self.install, app_label, schema_editor, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        self._change(self.remove, app_label, schema_editor, from_state)

    def _change(
        self,
        change: Callable[[type[Model], BaseDatabaseSchemaEditor], None],
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        state: ProjectState,
    ) -> None:
        model = state.apps.get_model(app_label, self.model_name)
        connection = schema_editor.connection
        if self.allow_migrate_model(connection.alias, model) and connection.vendor == "postgresql":
            change(model, schema_editor)

    @property
    def migration_name_fragment(self) -> str:
        """Return the operation's part of an automatic migration name."""
        return f"{self.model_name.lower()}_{self.fragment}"
