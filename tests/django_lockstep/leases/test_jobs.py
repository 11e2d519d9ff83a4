"""A command's end, where it comes from two sides at once."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from django_lockstep.leases.jobs import Job
from tests.support.processes import alive
from tests.support.sessions import until

# Both write down who they are; the child ends by SIGKILL only.
CHILD = "trap '' TERM; echo $$ > child; while :; do sleep 0.05; done"
COMMAND = ["sh", "-c", f'cd "$0"; sh -c "{CHILD.replace("$", chr(92) + "$")}" & echo $$ > leader; wait']


def number_in(path: Path) -> int | None:
    return int(path.read_text()) if path.exists() and path.read_text().endswith("\n") else None


@pytest.mark.slow
def test_a_command_that_ends_while_it_is_being_killed_takes_its_children_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_command_begins_with_the_signals_of_a_new_process_and_without_our_files(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert Job(["sh", "-c", "grep SigIgn /proc/self/status; ls /proc/self/fd"], grace=1).run() == 0
    ignored, *files = capfd.readouterr().out.split()[1:]
    # As in a shell: what this process ignores, for example below nohup, the command ignores as well.
    python_ignores = {signal.SIGPIPE, signal.SIGXFSZ}
    expected = {
        number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN
    } - python_ignores
    assert {number for number in range(1, 65) if int(ignored, 16) >> (number - 1) & 1} == expected
    assert files == ["0", "1", "2", "3"]  # the last one is the folder that ls reads


def test_a_command_that_has_ended_gets_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(["sh", "-c", "exit 3"], grace=60)
    assert job.run() == 3
    sent: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: sent.append(number))

    job.kill()
    until(lambda: "end of the command" not in {thread.name for thread in threading.enumerate()}, "the thread's end")

    assert not sent
