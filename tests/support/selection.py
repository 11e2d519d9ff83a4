"""Which tests ``pytest`` leaves out by itself, so that it ends in a few minutes, and by which mark they are chosen.

What is left covers every room. A place is a folder, a module, or a test of one; ``browser`` is every test that opens a
browser. ``pytest -m ""`` runs all of them, ``pytest -m slow`` those of one mark.
"""

from collections.abc import Iterable

import pytest

PLACES = {
    # Builds the wheels and installs them into other projects.
    "installed": ("tests/installed/",),
    # Starts, kills and waits for processes or servers of its own.
    "process": (
        "tests/accounts/api/test_readme.py",
        "tests/accounts/contrib/queued/test_queued.py::test_a_consumer_that_dies",
        "tests/accounts/races/test_leftovers.py",
        "tests/accounts/races/test_run.py",
        "tests/accounts/races/test_simulate.py",
        "tests/bank/",
        "tests/django_lockstep/editing/test_mariadb.py",
        "tests/django_lockstep/editing/test_processes.py",
        "tests/django_lockstep/lab/explorer/test_scratch.py",
        "tests/django_lockstep/lab/test_pool.py",
        "tests/django_lockstep/lab/test_interrupt.py",
        "tests/django_lockstep/lab/test_views.py",
        "tests/django_lockstep/leases/test_clocks.py",
        "tests/django_lockstep/leases/test_heartbeats.py",
        "tests/django_lockstep/leases/test_processes.py",
        "tests/django_lockstep/leases/test_restart.py",
        "tests/django_lockstep/leases/test_run_exclusive.py",
        "tests/django_lockstep/locking/test_increments.py",
        "tests/test_docs.py::test_they_build_without_a_warning",
        "tests/test_project.py",
    ),
    # Tries very many cases, or a case in many ways.
    "slow": (
        "tests/accounts/api/test_schema.py",
        "tests/accounts/races/test_races.py::test_every_round",
        "tests/accounts/races/test_races.py::test_full_and_reduced",
        "tests/accounts/test_account_model.py",
        "tests/accounts/test_apply_many.py::test_random_batches",
        "tests/accounts/test_strategies.py::test_many_at_once",
        "tests/benchmarks/",
        "tests/django_lockstep/admin/test_change_form.py",
        "tests/django_lockstep/admin/test_closed_fields.py",
        "tests/django_lockstep/admin/test_inlines.py",
        "tests/django_lockstep/admin/test_unfold.py",
        "tests/django_lockstep/editing/test_admin.py",
        "tests/django_lockstep/editing/test_change_form.py",
        "tests/django_lockstep/editing/test_races.py",
        "tests/django_lockstep/editing/test_writes.py",
        "tests/django_lockstep/lab/anomalies/test_command.py",
        "tests/django_lockstep/lab/anomalies/test_scratch_table.py",
        "tests/django_lockstep/lab/anomalies/test_tables.py",
        "tests/django_lockstep/lab/explorer/test_agreement.py",
        "tests/django_lockstep/lab/explorer/test_blocking.py",
        "tests/django_lockstep/lab/explorer/test_command.py",
        "tests/django_lockstep/lab/explorer/test_drawing.py::test_no_text_leaves",
        "tests/django_lockstep/lab/explorer/test_explanations.py",
        "tests/django_lockstep/lab/explorer/test_hooks.py",
        "tests/django_lockstep/lab/explorer/test_idle_pool.py",
        "tests/django_lockstep/lab/explorer/test_repeatable.py",
        "tests/django_lockstep/lab/explorer/test_schema.py",
        "tests/django_lockstep/lab/explorer/test_schema_agreement.py",
        "tests/django_lockstep/lab/explorer/test_specs.py",
        "tests/django_lockstep/lab/explorer/test_trouble.py",
        "tests/django_lockstep/lab/test_plot.py",
        "tests/django_lockstep/leases/test_machine.py",
        "tests/django_lockstep/locking/test_several_tables.py",
    ),
}

CHOICES = (*PLACES, "browser")
"""The marks, in the order in which they are given."""

_BROWSER_FIXTURE = "chromium"


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark each test by its place."""
    for item in items:
        for name, places in PLACES.items():
            if item.nodeid.startswith(places):
                item.add_marker(name)
        if _BROWSER_FIXTURE in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
