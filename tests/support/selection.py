"""Which tests ``pytest`` leaves out by itself, so that it ends in a few minutes, and by which mark they are chosen.

What is left covers every room. A place is a folder, a module, or a test of one; a parameter may have a mark of its own.
``pytest -m ""`` runs all of them, ``pytest -m slow`` those of one mark.

This module is a plugin of pytest: it marks the tests, limits the time that each may take, chooses how many worker
processes share them, and says at the end that there are others.
"""

import os
from pathlib import Path

import pytest

PLACES = {
    # Needs a package of an extra, which requirements.txt does not install.
    "extras": (
        "tests/django_lockstep/editing/graphql/",
        "tests/test_docs_code.py::test_it_runs[docs/reference/editing-api-0]",
        "tests/test_project.py::test_the_commands_of_the_cluster",
    ),
    # Builds the wheels and installs them into other projects.
    "installed": ("tests/installed/",),
    # Starts, kills and waits for processes or servers of its own.
    "process": (
        "tests/accounts/test_async.py",
        "tests/accounts/races/test_leftovers.py::test_what_a_killed_run",
        "tests/accounts/races/test_run.py",
        "tests/accounts/races/test_simulate.py",
        "tests/accounts/races/test_load.py::test_accounts_are_as_many_as_each_size_says",
        "tests/accounts/races/test_load.py::test_workers_are_as_many_as_each_size_says",
        "tests/bank/",
        "tests/django_lockstep/editing/test_mariadb.py",
        "tests/django_lockstep/editing/test_processes.py",
        "tests/django_lockstep/lab/explorer/test_cluster.py",
        "tests/django_lockstep/lab/explorer/test_interrupt.py",
        "tests/django_lockstep/lab/explorer/test_processes.py",
        "tests/django_lockstep/lab/explorer/test_scratch.py",
        "tests/django_lockstep/lab/finder/test_command.py",
        "tests/django_lockstep/lab/finder/test_find_races.py",
        "tests/django_lockstep/lab/finder/test_find_races_in_any_test.py",
        "tests/django_lockstep/lab/finder/test_partners.py",
        "tests/django_lockstep/lab/finder/test_plugin.py",
        "tests/django_lockstep/lab/finder/test_seeded_club.py",
        "tests/django_lockstep/lab/test_pool.py",
        "tests/django_lockstep/lab/pages/test_progress.py",
        "tests/django_lockstep/lab/pages/test_views.py",
        "tests/django_lockstep/leases/test_heartbeats.py",
        "tests/django_lockstep/leases/test_processes.py",
        "tests/django_lockstep/leases/test_run_exclusive.py",
        "tests/django_lockstep/test_root.py::test_the_library_works_without_django_concurrency",
        "tests/django_lockstep/test_runtime_checks.py::test_pytest_has_an_option",
    ),
    # Tries very many cases, or a case in many ways.
    "slow": (
        "tests/accounts/races/test_races.py::test_a_directed_race",
        "tests/accounts/races/test_races.py::test_a_race_comes_out",
        "tests/accounts/races/test_races.py::test_every_round",
        "tests/accounts/races/test_races.py::test_full_and_reduced",
        "tests/accounts/races/test_races.py::test_its_wrong_end",
        "tests/accounts/races/test_races.py::test_safe_code",
        "tests/accounts/test_account_model.py",
        "tests/accounts/test_apply_many.py",
        "tests/accounts/test_hot.py",
        "tests/benchmarks/",
        "tests/django_lockstep/admin/test_change_form.py",
        "tests/django_lockstep/admin/test_inlines.py",
        "tests/django_lockstep/admin/test_unfold.py",
        "tests/django_lockstep/editing/test_admin.py",
        "tests/django_lockstep/editing/test_change_form.py",
        "tests/django_lockstep/editing/test_races.py",
        "tests/django_lockstep/editing/test_schema.py",
        "tests/django_lockstep/editing/test_writes.py",
        "tests/django_lockstep/lab/test_anomalies.py",
        "tests/django_lockstep/lab/explorer/test_agreement.py",
        "tests/django_lockstep/lab/explorer/test_audit.py",
        "tests/django_lockstep/lab/explorer/test_blocking.py",
        "tests/django_lockstep/lab/explorer/test_command.py",
        "tests/django_lockstep/lab/explorer/test_contests.py",
        "tests/django_lockstep/lab/explorer/test_copies.py",
        "tests/django_lockstep/lab/explorer/test_databases.py",
        "tests/django_lockstep/lab/explorer/test_directed.py",
        "tests/django_lockstep/lab/explorer/test_drawing.py::test_no_text_leaves",
        "tests/django_lockstep/lab/explorer/test_events.py::test_a_wait_ends_at_its_time_out_however_short_it_is",
        "tests/django_lockstep/lab/explorer/test_explanations.py",
        "tests/django_lockstep/lab/explorer/test_fairness.py",
        "tests/django_lockstep/lab/explorer/test_hooks.py",
        "tests/django_lockstep/lab/explorer/test_left_sessions.py",
        "tests/django_lockstep/lab/explorer/test_nondeterminism.py",
        "tests/django_lockstep/lab/explorer/test_own_waits.py",
        "tests/django_lockstep/lab/explorer/test_parts.py",
        "tests/django_lockstep/lab/explorer/test_predicate_locks.py",
        "tests/django_lockstep/lab/explorer/test_pytest_plugin.py",
        "tests/django_lockstep/lab/explorer/test_racy_code.py",
        "tests/django_lockstep/lab/explorer/test_references.py",
        "tests/django_lockstep/lab/explorer/test_repeatable.py",
        "tests/django_lockstep/lab/explorer/test_requests.py",
        "tests/django_lockstep/lab/explorer/test_schema.py",
        "tests/django_lockstep/lab/explorer/test_schema_agreement.py",
        "tests/django_lockstep/lab/explorer/test_search.py::test_however_many",
        "tests/django_lockstep/lab/explorer/test_specs.py",
        "tests/django_lockstep/lab/explorer/test_trouble.py",
        "tests/django_lockstep/lab/explorer/test_unique_keys.py",
        "tests/django_lockstep/lab/explorer/test_verdicts.py",
        "tests/django_lockstep/lab/explorer/test_watches.py",
        "tests/django_lockstep/lab/finder/test_answers.py",
        "tests/django_lockstep/lab/finder/test_committed.py",
        "tests/django_lockstep/lab/finder/test_remedies.py",
        "tests/django_lockstep/lab/finder/test_transplants.py",
        "tests/django_lockstep/lab/test_database.py",
        "tests/django_lockstep/lab/test_plot.py",
        "tests/django_lockstep/leases/test_handles.py",
        "tests/django_lockstep/leases/test_machine.py",
        "tests/django_lockstep/leases/test_replicas.py",
        "tests/django_lockstep/leases/test_waiting.py",
        "tests/django_lockstep/locking/test_async.py",
        "tests/django_lockstep/locking/test_prepared.py::test_a_time_is_the_same",
        "tests/django_lockstep/locking/test_guard.py",
        "tests/django_lockstep/locking/test_rollbacks.py",
        "tests/django_lockstep/locking/test_rows.py::test_no_two_ways_deadlock",
        "tests/django_lockstep/locking/test_shapes.py::test_it_does_what_djangos_does",
        "tests/django_lockstep/locking/test_shapes.py::test_it_saves_what_djangos_does",
        "tests/django_lockstep/locking/test_versions.py::test_no_interleaving",
        "tests/django_lockstep/test_checks.py::test_this_project_has_what_it_uses",
        "tests/test_docs_databases.py::test_the_table_is_what",
        # A DynamoDB server; so do those parameters of the other tests there.
        "tests/accounts/contrib/dynamodb/",
        "tests/django_lockstep/stores/test_dynamodb.py",
        "tests/django_lockstep/stores/test_items.py",
    ),
    # Opens chromium.
    "browser": (
        "tests/django_lockstep/admin/test_browser.py",
        "tests/bank/test_accessibility.py",
        "tests/bank/test_lab_browser.py",
        "tests/bank/test_overdrafts.py",
        "tests/django_lockstep/editing/test_browser.py",
        "tests/django_lockstep/lab/finder/test_report_page.py",
        "tests/django_lockstep/monitor/test_locks_browser.py",
    ),
}

_SECONDS = {"extras": 120, "installed": 900, "process": 300, "slow": 600, "browser": 300}
"""How long a test with the mark may take, fixtures included; without one it is the ``timeout`` of pyproject.toml."""


_MOST_WORKERS = 4
"""More would wait for the disk: each has a PostgreSQL of its own."""


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Take a worker a core; none where only modules and tests are named, for the start of one takes seconds."""
    if all(".py" in argument for argument in config.args):
        return 0
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, _MOST_WORKERS)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the modules that the fast selection leaves out, nor what they need."""
    names = _marks(collection_path.relative_to(config.rootpath).as_posix())
    # Any other choice of marks than that of pyproject.toml is left to pytest.
    return True if names and collection_path.match("test_*.py") and _is_fast(config) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests by their place, before pytest chooses by marks."""
    for item in items:
        for name in _marks(item.nodeid):
            item.add_marker(name)
        # The mark would be stronger than the command line.
        if config.getoption("timeout") is None:
            # By its place or of its own, as the parameters of a fixture have them.
            for name in filter(item.get_closest_marker, PLACES):
                item.add_marker(pytest.mark.timeout(_SECONDS[name]))


def _marks(place: str) -> list[str]:
    return [name for name, places in PLACES.items() if place.startswith(places)]


def _is_fast(config: pytest.Config) -> bool:
    """Whether marks are chosen as pyproject.toml does it: it leaves out every one of them."""
    return config.option.markexpr in config.getini("addopts")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how the other tests are run."""
    if _is_fast(terminalreporter.config):
        terminalreporter.write_line('the fast selection; pytest -m "" runs everything')
