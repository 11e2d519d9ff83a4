"""The admin of accounts and entries, with pages for deposits, withdrawals and transfers.

Its modules can be imported without the app's tables; its models are registered only where the app is installed.
"""

from django.apps import apps

if apps.models_ready and any(config.name == "accounts" for config in apps.get_app_configs()):
    import accounts.admin.account  # noqa: F401 - registers
