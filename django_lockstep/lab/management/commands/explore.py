"""The command that explores races from the shell, or says which extra it needs."""

from django_lockstep.lab.management.refusal import load_command

Command = load_command("django_lockstep.lab.management.explore")
