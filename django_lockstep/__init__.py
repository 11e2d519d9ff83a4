"""Safe concurrent writes in Django.

Import from the rooms: ``locking``, ``leases``, ``idempotency``, ``stores``, ``editing``, ``http``, ``admin`` and
``monitor``; and ``lab``, which django-lockstep-lab installs here.
"""
