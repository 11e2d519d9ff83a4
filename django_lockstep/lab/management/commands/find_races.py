"""The command that finds races in the project's own tests, or says which extra it needs."""

from django_lockstep.lab.management.refusal import load_command

Command = load_command("django_lockstep.lab.management.find_races")
