"""The admin of accounts: their pages, their entries, and what can be booked by hand.

Importing a module of this package needs none of our tables; ours are registered where the app is installed.
"""

from django.apps import apps

if apps.models_ready and any(config.name == "accounts" for config in apps.get_app_configs()):
    import accounts.admin.account
    import accounts.admin.token  # noqa: F401 - registers
