"""The command that tabulates isolation anomalies, or says which extra it needs."""

from django_lockstep.lab.management.refusal import load_command

Command = load_command("django_lockstep.lab.management.anomalies")
