"""Migration operations that put a trigger on a model's table."""

from __future__ import annotations

from typing import ClassVar

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.utils import truncate_name
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Model

from django_lockstep.locking.fields import uncounted_fields, version_field
from django_lockstep.locking.writes import VERSION_KEPT

__all__ = ["AddVersionGuard", "RowTrigger", "trigger_name"]


class RowTrigger(Operation):
    """Install a row trigger with a function of its own on PostgreSQL; do nothing on other databases. Reversible.

    Subclasses name the trigger (``suffix``), say when it fires (``events``) and what it does (``body``).
    """

    reversible = True
    suffix: ClassVar[str]
    """What the trigger's name adds to the table's."""
    events: ClassVar[str]
    """When it fires, such as ``BEFORE UPDATE OR DELETE``."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def body(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> str:
        """Return the statements of the trigger function, in PL/pgSQL."""
        raise NotImplementedError

    def condition(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> str:
        """Return the trigger's WHEN clause, if it has one."""
        return ""

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: triggers are not part of a model's state."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if model := self._model_to_change(app_label, schema_editor, to_state):
            table, name = self._names(model, schema_editor)
            body, when = self.body(model, schema_editor), self.condition(model, schema_editor)
            schema_editor.execute(
                f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$",
                params=None,
            )
            schema_editor.execute(
                # OR REPLACE: a repeated migration, after a change of the operation's options, installs the new body.
                f"CREATE OR REPLACE TRIGGER {name} {self.events} ON {table} FOR EACH ROW {when} "
                f"EXECUTE FUNCTION {name}()",
                params=None,
            )

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if model := self._model_to_change(app_label, schema_editor, from_state):
            table, name = self._names(model, schema_editor)
            schema_editor.execute(f"DROP TRIGGER IF EXISTS {name} ON {table}", params=None)
            schema_editor.execute(f"DROP FUNCTION IF EXISTS {name}()", params=None)

    def _model_to_change(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, state: ProjectState
    ) -> type[Model] | None:
        model = state.apps.get_model(app_label, self.model_name)
        connection = schema_editor.connection
        allowed = self.allow_migrate_model(connection.alias, model)
        return model if allowed and connection.vendor == "postgresql" else None

    def _names(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> tuple[str, str]:
        """Return the quoted names of the table and of the trigger, which is its function's too."""
        quote = schema_editor.connection.ops.quote_name
        return quote(model._meta.db_table), quote(trigger_name(model._meta.db_table, self.suffix))


def trigger_name(table: str, suffix: str) -> str:
    """Return the trigger's unquoted name, shortened to what PostgreSQL keeps of a name."""
    return truncate_name(f"{table}_{suffix}", 63)


class AddVersionGuard(RowTrigger):
    """Make every UPDATE of the model's rows raise their version, whichever program sends it.

    For PostgreSQL: a BEFORE UPDATE trigger adds one where the writer changed something and left the version unchanged
    or lowered it: a version that returns would let a stale write pass. A writer that raises the version itself, as
    instances of `VersionedModel` do, is not counted twice. On the table of a model that inherits its version from
    another table, the trigger raises the version there. The field's ``uncounted`` columns do not count; after a change
    of that option, add the operation to a further migration. On other databases the operation does nothing, and a
    system check warns of it.
    """

    suffix = GUARD_SUFFIX = "version_guard"
    events = "BEFORE UPDATE"

    def condition(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> str:
        """Fire only where the version is not raised; on a table without it, always."""
        version = version_field(model)
        if version.model is not model:
            return ""
        column = schema_editor.connection.ops.quote_name(str(version.column))
        # In the WHEN clause: for a writer that raised the version itself, the function is not even called.
        return f"WHEN (OLD.{column} >= NEW.{column})"

    def body(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> str:
        """Raise the version if anything changed; ``*<>`` compares every type, also those without ``=``."""
        quote = schema_editor.connection.ops.quote_name
        version = version_field(model)
        column, owner = quote(str(version.column)), version.model
        if owner is model:
            names = sorted(quote(str(field.column)) for field in uncounted_fields(model) if field.model is model)
            # Copied into OLD first, so that the row comparison below ignores the uncounted columns.
            left_out = "".join(f"OLD.{name} := NEW.{name}; " for name in names)
            return f"{left_out}IF NEW *<> OLD THEN NEW.{column} := OLD.{column} + 1; END IF; RETURN NEW;"
        link = model._meta.get_ancestor_link(owner)
        if link is None:
            raise TypeError(f"{model._meta.label} has no link to {owner._meta.label}, which holds its version")
        return (
            f"IF NEW *<> OLD AND current_setting('{VERSION_KEPT}', true) IS DISTINCT FROM 'on' THEN "
            f"UPDATE {quote(owner._meta.db_table)} SET {column} = {column} + 1 "
            f"WHERE {quote(str(owner._meta.pk.column))} = NEW.{quote(str(link.column))}; END IF; RETURN NEW;"
        )

    def describe(self) -> str:
        return f"Guard the version of {self.model_name}"

    @property
    def migration_name_fragment(self) -> str:
        """Return the operation's part of an automatic migration name."""
        return f"{self.model_name.lower()}_version_guard"
