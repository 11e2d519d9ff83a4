"""Migration operations that put a trigger on a model's table, and keep it right when other migrations change the model.

The function of a trigger is text in which PostgreSQL follows no rename, unlike in a trigger's WHEN clause. Reading the
names from the catalog instead would cost every row a query, and a function whose body is parsed (``BEGIN ATOMIC``)
would forbid to change the type of a column that it names. So every migration ends with `_Restore`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from django.db import router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.utils import truncate_name
from django.db.migrations.operations import RemoveField
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Model

from django_lockstep.locking.fields import VersionField, version_field
from django_lockstep.locking.writes import VERSION_KEPT


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


class RowTrigger(TableOperation):
    """Install a row trigger with a function of its own.

    Subclasses name the trigger (``trigger``), say when it fires (``events``) and what it does (``body``).
    """

    trigger: ClassVar[str]
    """The trigger's name, the same on every table."""
    events: ClassVar[str]
    """When it fires, such as ``BEFORE UPDATE OR DELETE``."""

    def fits(self, model: type[Model]) -> bool:
        """Whether the trigger makes sense on the model's table."""
        return True

    def body(self, model: type[Model], connection: BaseDatabaseWrapper) -> str:
        """Return the statements of the trigger function, in PL/pgSQL."""
        raise NotImplementedError

    def condition(self, model: type[Model], connection: BaseDatabaseWrapper) -> str:
        """Return the trigger's WHEN clause, if it has one."""
        return ""

    def install(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> None:
        """Create the trigger and its function, or replace them."""
        connection = schema_editor.connection
        function = connection.ops.quote_name(self.function(model))
        # A string literal: a name inside could end a dollar-quoted body.
        source = self.source(model, connection).replace("'", "''")
        schema_editor.execute(
            f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS '{source}'", params=None
        )
        schema_editor.execute(
            f"CREATE OR REPLACE TRIGGER {self.trigger} {self.events} ON {_table(model, connection)} FOR EACH ROW "
            f"{self.condition(model, connection)} EXECUTE FUNCTION {function}()",
            params=None,
        )

    def remove(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> None:
        """Drop the trigger and its function, where they are."""
        table, function = map(schema_editor.connection.ops.quote_name, (model._meta.db_table, self.function(model)))
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {self.trigger} ON {table}", params=None)
        schema_editor.execute(f"DROP FUNCTION IF EXISTS {function}()", params=None)

    def source(self, model: type[Model], connection: BaseDatabaseWrapper) -> str:
        """Return the text of the function, as ``pg_proc.prosrc`` has it."""
        return f" BEGIN {self.body(model, connection)} END "

    def function(self, model: type[Model]) -> str:
        """Return the function's unquoted name: the table's and the trigger's, cut to what PostgreSQL keeps."""
        name = f"{model._meta.db_table}_{self.trigger}"
        # PostgreSQL counts bytes; Django's function counts characters, and puts a hash in place of the rest.
        return truncate_name(name, 63 + len(name) - len(name.encode()))


def _table(model: type[Model], connection: BaseDatabaseWrapper) -> str:
    return connection.ops.quote_name(model._meta.db_table)


def restore_triggers(plan: Any = None, **kwargs: object) -> None:
    """Let each migration of the plan end with `_Restore`; a receiver of ``pre_migrate``, as contenttypes has one."""
    for migration, backwards in plan or ():
        if any(isinstance(operation, _Restore) for operation in migration.operations):
            continue  # the signal is sent for every app that has models
        operations: list[Operation] = []
        for operation in migration.operations:
            operations += [_DropGuard(operation), operation] if isinstance(operation, RemoveField) else [operation]
        # Backwards, the operations run from the last to the first.
        migration.operations = [_Restore(), *operations] if backwards else [*operations, _Restore()]


class _Restore(Operation):
    """Install again each trigger whose function does not fit its model any more."""

    reduces_to_sql = False

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Leave the state of the models: only triggers are put right."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: Any, to_state: Any
    ) -> None:
        """Do it, forwards and backwards."""
        # Django renders a model that has changed, and its children, at once; RunPython has it render all of them anew,
        # which takes longer than most migrations. Only a grandchild's version needs that.
        if any(len(model._meta.parents) > 1 for model in from_state.apps.get_models()):
            from_state.clear_delayed_apps_cache()
        connection = schema_editor.connection
        outdated = list(outdated_triggers(from_state.apps, connection))
        if not outdated:
            return
        for operation, model, _ in outdated:
            (operation.install if operation.fits(model) else operation.remove)(model, schema_editor)
        with connection.cursor() as cursor:  # a renamed table's trigger has got a function with another name
            cursor.execute(
                "SELECT oid::regprocedure::text FROM pg_proc WHERE oid = ANY (%s)"
                " AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgfoid = pg_proc.oid)",
                [[function for _, _, function in outdated]],
            )
            for (function,) in cursor.fetchall():
                schema_editor.execute(f"DROP FUNCTION {function}", params=None)

    database_backwards = database_forwards


def outdated_triggers(apps: Any, connection: BaseDatabaseWrapper) -> Iterator[tuple[RowTrigger, type[Model], int]]:
    """Yield the triggers on these models' tables whose function is not what the model needs, with its oid."""
    if connection.vendor != "postgresql":
        return
    kinds = {kind.trigger: kind for kind in RowTrigger.__subclasses__()}
    models = {
        _table(model, connection): model
        for model in apps.get_models()
        if model._meta.can_migrate(connection) and router.allow_migrate_model(connection.alias, model)
    }
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, tgname, proname, prosrc, tgfoid FROM unnest(%s::text[]) AS name"
            " JOIN pg_trigger ON tgrelid = to_regclass(name) AND tgname = ANY (%s) JOIN pg_proc p ON p.oid = tgfoid",
            [list(models), list(kinds)],
        )
        rows = cursor.fetchall()
    for table, trigger, function, source, oid in rows:
        model = models[table]
        operation = kinds[trigger](str(model._meta.object_name))
        # Compared by name as well: a table may have got the name, and so the function, that was another's.
        if not operation.fits(model) or (function, source) != (
            operation.function(model).rpartition('"."')[2],
            operation.source(model, connection),
        ):
            yield operation, model, oid


class AddVersionGuard(RowTrigger):
    """Make every UPDATE of the model's rows raise their version, whichever program sends it.

    For PostgreSQL: a BEFORE UPDATE trigger adds one where the writer changed something and left the version unchanged
    or lowered it: a version that returns would let a stale write pass. A writer that raises the version itself, as
    instances of `VersionedModel` do, is not counted twice. On the table of a model that inherits its version from
    another table, the trigger raises the version there. The field's ``uncounted`` columns do not count. The trigger
    follows migrations that rename what it names or change that option; a system check tells where it could not. On
    other databases the operation does nothing, and a system check warns of it.
    """

    trigger = "lockstep_version_guard"
    fragment = "version_guard"
    events = "BEFORE UPDATE"

    def fits(self, model: type[Model]) -> bool:
        """Whether the model has a version."""
        return any(isinstance(field, VersionField) for field in model._meta.concrete_fields)

    def condition(self, model: type[Model], connection: BaseDatabaseWrapper) -> str:
        """Fire only where the version is not raised; on a table without it, always."""
        version = version_field(model)
        if version.model is not model:
            return ""
        column = connection.ops.quote_name(str(version.column))
        # In the WHEN clause: for a writer that raised the version itself, the function is not even called.
        return f"WHEN (OLD.{column} >= NEW.{column})"

    def body(self, model: type[Model], connection: BaseDatabaseWrapper) -> str:
        """Raise the version if anything changed; ``*<>`` compares every type, also those without ``=``."""
        quote = connection.ops.quote_name
        version = version_field(model)
        column, owner = quote(str(version.column)), version.model
        # Copied into OLD, so that the row comparison below ignores them. Generated columns are computed after BEFORE
        # triggers: NEW has NULL there, whatever the row gets.
        names = [
            quote(str(field.column))
            for field in model._meta.local_concrete_fields
            # By name: a historical model may name a field that was renamed since.
            if field.generated or (owner is model and field.name in version.uncounted)
        ]
        left_out = "".join(f"OLD.{name} := NEW.{name}; " for name in sorted(names))
        if owner is model:
            return f"{left_out}IF NEW *<> OLD THEN NEW.{column} := OLD.{column} + 1; END IF; RETURN NEW;"
        link = model._meta.get_ancestor_link(owner)
        if link is None:
            raise TypeError(f"{model._meta.label} has no link to {owner._meta.label}, which holds its version")
        return (
            f"{left_out}IF NEW *<> OLD AND current_setting('{VERSION_KEPT}', true) IS DISTINCT FROM 'on' THEN "
            f"UPDATE {quote(owner._meta.db_table)} SET {column} = {column} + 1 "
            f"WHERE {quote(str(owner._meta.pk.column))} = NEW.{quote(str(link.column))}; END IF; RETURN NEW;"
        )

    def describe(self) -> str:
        return f"Guard the version of {self.model_name}"


class _DropGuard(AddVersionGuard):
    """Drop the guard of a version that the next operation removes: from Django 6.1 on, that would be refused."""

    def __init__(self, removal: RemoveField) -> None:
        super().__init__(removal.model_name)
        self._field = removal.name

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        field = from_state.models[app_label, self.model_name.lower()].fields[self._field]
        if isinstance(field, VersionField):
            self._change(self.remove, app_label, schema_editor, from_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Do nothing: another migration installed the trigger, and one can install it again."""
