"""``manage.py run_exclusive``: a command that runs once over all servers."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_lockstep.leases import LeaseHandle
from django_lockstep.leases.jobs import Job
from django_lockstep.leases.models import Lease
from django_lockstep.leases.testing import steal
from tests.accounts.races.commands import any_left, environment
from tests.django_lockstep.leases.holding import acquired, holder_of, lock_rows
from tests.django_lockstep.leases.test_waiting import queued
from tests.support.processes import alive, start
from tests.support.sessions import Session, until

pytestmark = pytest.mark.django_db(transaction=True)

# Prints a line, then waits for signals: TERM is told of and ends it, unless it is to be stubborn.
WAITS = ["sh", "-c", "trap 'echo told; exit 3' TERM; echo here; while :; do sleep 0.05; done"]
STUBBORN = ["sh", "-c", "trap '' TERM; echo here; while :; do sleep 0.05; done"]


def run_exclusive(*args: str, **env: str) -> "subprocess.Popen[str]":
    """Start the command in a process group of its own."""
    env = environment(DJANGO_SETTINGS_MODULE="tests.django_lockstep.leases.live_settings", **env)
    return start("manage.py", "run_exclusive", *args, env=env, stderr=subprocess.PIPE)


@contextmanager
def running(*args: str) -> "Iterator[subprocess.Popen[str]]":
    """Start the command with a program that prints a line when it is there, and wait for that; end it at last."""
    process = run_exclusive(*args)
    try:
        assert process.stdout
        assert process.stdout.readline() == "here\n"
        yield process
    finally:
        if any_left(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=30)
    return process.returncode, output, errors


def run(*args: str) -> tuple[int, str, str]:
    return ended(run_exclusive(*args))


def test_it_ends_as_the_command_does() -> None:
    code, output, _ = run("k", "--ttl", "60", "--", "sh", "-c", "echo $0 $1; exit 7", "--a", "b c")
    assert (code, output) == (7, "--a b c\n")
    assert Lease.objects.holder("k") is None


@pytest.mark.parametrize(("command", "code"), [("kill -9 $$", 137), ("exec /nowhere", 127), ("exec /", 126)])
def test_it_ends_as_a_shell_would(command: str, code: int) -> None:
    assert run("k", "--ttl", "60", "--", "sh", "-c", command)[0] == code


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/", 126)])
def test_what_cannot_be_run_gives_the_lease_back(program: str, code: int) -> None:
    assert run("k", "--ttl", "60", "--at-least", "0.001", "--", program)[0] == code
    assert Lease.objects.acquire("k", 60)


def test_a_lease_that_is_held_is_75_and_the_holder_is_named() -> None:
    Lease.objects.acquire("k", 60, owner="ada")
    code, output, errors = run("k", "--ttl", "60", "--", "echo", "ran")
    assert (code, output) == (75, "")
    assert "Lease 'k' has been held by ada" in errors


def test_it_can_wait(handle: LeaseHandle) -> None:
    process = run_exclusive("k", "--ttl", "60", "--wait", "30", "--", "echo", "ran")
    handle.release()
    assert ended(process)[:2] == (0, "ran\n")


def test_four_terminals_at_once_run_it_once() -> None:
    started = [run_exclusive("job", "--ttl", "60", "--at-least", "60", "--", "echo", "ran") for _ in range(4)]
    results = [ended(process)[:2] for process in started]
    assert sorted(results) == [(0, "ran\n"), (75, ""), (75, ""), (75, "")]


def test_while_it_runs_others_see_what_runs_but_not_its_arguments() -> None:
    with running("k", "--ttl", "60", "--", *WAITS):
        assert holder_of("k").data == {"command": ["sh", "***", "***"]}


def test_the_command_finds_its_token_in_its_environment() -> None:
    code, output, _ = run("k", "--ttl", "60", "--", "sh", "-c", "echo $LOCKSTEP_LEASE_KEY $LOCKSTEP_LEASE_TOKEN")
    assert (code, output) == (0, f"k {Lease.objects.get().token}\n")


def test_without_a_database_it_is_69() -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    code, output, errors = ended(run_exclusive("k", "--ttl", "60", "--", "echo", "ran", DATABASE_URL=nowhere))
    assert (code, output) == (69, "")
    assert "The database cannot be reached" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_go_on_to_the_command(number: signal.Signals) -> None:
    script = f"trap 'echo told; exit 3' {number.name.removeprefix('SIG')}; echo here; while :; do sleep 0.05; done"
    with running("k", "--ttl", "60", "--", "sh", "-c", script) as process:
        process.send_signal(number)
        assert ended(process)[:2] == (3, "told\n")
    assert Lease.objects.holder("k") is None


def test_a_signal_right_after_the_acquire_leaves_no_lease() -> None:
    for _ in range(3):
        process = run_exclusive("k", "--ttl", "600", "--", "sleep", "600")
        until(lambda: Lease.objects.held().exists(), "the acquire")
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 128 + signal.SIGTERM
        assert not Lease.objects.held().exists()


def test_a_signal_ends_the_wait_for_the_lease(handle: LeaseHandle) -> None:
    process = run_exclusive("k", "--ttl", "600", "--wait", "600", "--", "echo", "ran")
    until(lambda: queued() == 1, "the wait")
    process.send_signal(signal.SIGTERM)
    assert ended(process)[:2] == (128 + signal.SIGTERM, "")
    assert Lease.objects.get().token == handle.token


def test_a_signal_during_the_release_does_not_stop_it(other: Session) -> None:
    with running("k", "--ttl", "60", "--", "sh", "-c", "echo here; read -r line; exit 7") as process:
        with other.holding(lock_rows):
            assert process.stdin
            process.stdin.close()
            process.stdin = None
            until(other.is_waited_for, "the release")
            process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 7
    assert not Lease.objects.held().exists()


def test_a_lost_lease_ends_the_command() -> None:
    with running("k", "--ttl", "1.5", "--", *WAITS) as process:
        thief = steal("k")
        code, output, errors = ended(process)
    assert (code, output) == (70, "told\n")
    assert "Lease 'k' was lost" in errors
    assert Lease.objects.get().token == thief.token


def test_who_does_not_listen_is_killed_after_the_grace() -> None:
    with running("k", "--ttl", "1.5", "--grace", "0.1", "--", *STUBBORN) as process:
        steal("k")
        assert ended(process)[0] == 70


LEAVES = "sh -c 'trap \"\" TERM; echo $$ > {pid}; while :; do sleep 0.05; done' & until [ -s {pid} ]; do :; done; "


@pytest.mark.parametrize("then", ["echo here; wait", "echo here"], ids=["lost", "over"])
def test_what_a_command_leaves_behind_is_ended_before_the_lease_is_given_back(tmp_path: Path, then: str) -> None:
    pid = tmp_path / "pid"
    script = LEAVES.format(pid=pid) + then
    with running("k", "--ttl", "1.5", "--grace", "0.1", "--", "sh", "-c", script) as process:
        if then.endswith("wait"):
            steal("k")
        ended(process)
        assert not alive(int(pid.read_text()))


def test_a_killed_holder_takes_its_command_along_and_is_followed(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; echo here; while :; do sleep 0.05; done"
    with running("k", "--ttl", "3", "--", "sh", "-c", script) as process:
        begun = Lease.objects.get().expires_at
        until(lambda: Lease.objects.get().expires_at > begun, "a heartbeat")
        process.kill()
        until(lambda: not alive(int((tmp_path / "pid").read_text())), "the command's end")
        assert Lease.objects.get().expires_at <= acquired(wait=20).acquired_at


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["k", "--ttl", "0", "--", "true"], "ttl must be finite and greater than zero"),
        (["k" * 256, "--ttl", "5", "--", "true"], "key must have 1 to 255 characters"),
        (["k", "--ttl", "5", "--wait", "-1", "--", "true"], "wait must be finite and at least zero"),
        (["k", "--ttl", "soon", "--", "true"], "invalid float value: 'soon'"),
        (["k", "--ttl", "5"], "COMMAND"),
    ],
)
def test_wrong_usage_is_2(args: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said) as caught:
        call_command("run_exclusive", *args)
    assert caught.value.returncode in {1, 2}


# leases, purge_leases


@pytest.fixture
def manage(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*args: str, **options: Any) -> str:
        call_command(*args, **options)
        return capsys.readouterr().out

    return call


def test_leases_lists_who_holds_what(manage: Callable[..., str]) -> None:
    Lease.objects.acquire("held", 60, owner="ada")
    Lease.objects.acquire("gone", 60).release()  # type: ignore[union-attr]
    (heading, row), everything = manage("leases").splitlines(), manage("leases", "--all")
    assert heading.split() == ["key", "owner", "token", "state", "age", "remaining"]
    assert row.split()[:2] == ["held", "ada"]
    assert "free" in everything


def test_purge_deletes_what_ended_long_ago(manage: Callable[..., str]) -> None:
    for key in ("held", "new", "old"):
        Lease.objects.acquire(key, 60)
    Lease.objects.filter(key="old").update(expires_at="2020-01-01T00:00Z")
    Lease.objects.filter(key="new").force_release()
    assert manage("purge_leases", "--older-than", "1d", "--dry-run") == "Leases that would be deleted: 1\n"
    assert manage("purge_leases", "--older-than", "1d") == "Leases deleted: 1\n"
    assert set(Lease.objects.values_list("key", flat=True)) == {"held", "new"}


@pytest.mark.parametrize("text", ["0d", "5", "d", "1y", "-1d", "36526d", "9999999999999d"])
def test_purge_wants_a_duration(text: str) -> None:
    with pytest.raises(CommandError, match="must be a duration such as 90s|expected one argument|is too long"):
        call_command("purge_leases", "--older-than", text)


# A command's end, where it comes from two sides at once. Both write down who they are; the child ends by SIGKILL only.
CHILD = "trap '' TERM; echo $$ > child; while :; do sleep 0.05; done"
COMMAND = ["sh", "-c", f'cd "$0"; sh -c "{CHILD.replace("$", chr(92) + "$")}" & echo $$ > leader; wait']


def number_in(path: Path) -> int | None:
    return int(path.read_text()) if path.exists() and path.read_text().endswith("\n") else None


@pytest.mark.slow
def test_a_command_that_ends_while_killed_leaves_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(threading.Thread):
        def start(self) -> None:
            if self.name == "end of the command":  # not the thread that notices the leader's end
                leader = number_in(tmp_path / "leader")
                assert leader
                os.kill(leader, signal.SIGKILL)
                until(lambda: not Path(f"/proc/{leader}").exists(), "its end to be noticed")
            super().start()

    job = Job([*COMMAND, str(tmp_path)], grace=0.01)
    with ThreadPoolExecutor(1) as pool:
        code = pool.submit(job.run)
        until(lambda: all(number_in(tmp_path / name) for name in ("leader", "child")), "both to be there")
        monkeypatch.setattr(threading, "Thread", Late)
        job.kill()
        assert code.result(timeout=30) == 128 + signal.SIGKILL

    assert "end of the command" not in {thread.name for thread in threading.enumerate()}
    child = number_in(tmp_path / "child")
    assert child
    until(lambda: not alive(child), "the child's end")


KILLED_AT_ONCE = """
import os, signal, subprocess
from django_lockstep.leases.jobs import Job

class Popen(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        if options.get("stdin") is None:  # not the watcher
            os.kill(os.getpid(), signal.SIGKILL)

subprocess.Popen = Popen
Job(["sleep", "600"], grace=1).run()
"""


def test_a_command_whose_keeper_is_killed_as_soon_as_it_has_begun_is_killed_too() -> None:
    """As it inherits the output, that ends with the last of them."""
    done = subprocess.run([sys.executable, "-c", KILLED_AT_ONCE], check=False, capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGKILL


def _signals(mask: str) -> set[int]:
    return {number for number in range(1, 65) if int(mask, 16) >> (number - 1) & 1}


def test_a_command_has_the_signals_of_a_new_process_and_none_of_our_files(capfd: pytest.CaptureFixture[str]) -> None:
    assert Job(["sh", "-c", "grep SigIgn /proc/self/status; ls /proc/self/fd"], grace=1).run() == 0
    ignored, *files = capfd.readouterr().out.split()[1:]
    # As in a shell: what this process ignores, for example below nohup, the command ignores as well.
    python_ignores = {signal.SIGPIPE, signal.SIGXFSZ}
    (own,) = re.findall(r"^SigIgn:\s*(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert _signals(ignored) == _signals(own) - python_ignores
    assert files == ["0", "1", "2", "3"]  # the last one is the folder that ls reads


def test_a_command_that_has_ended_gets_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(["sh", "-c", "exit 3"], grace=60)
    assert job.run() == 3
    sent: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: sent.append(number))

    job.kill()
    until(lambda: "end of the command" not in {thread.name for thread in threading.enumerate()}, "the thread's end")

    assert not sent
