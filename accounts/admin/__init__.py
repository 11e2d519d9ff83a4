"""The admin: `accounts.admin.versioned` for any versioned model, and the bank's own pages.

Importing a module of this package needs none of our tables; ours are registered where the app is installed.
"""

from django.apps import apps

if apps.models_ready and any(config.name == "accounts" for config in apps.get_app_configs()):
    import accounts.admin.bank.account  # noqa: F401 - registers
