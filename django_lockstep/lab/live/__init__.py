"""Races that go on while pages show how far they are: each run is a process of its own, its progress files on the host.

A page starts a run and answers at once; any process of the server on this host can show it, stop it, or be started
again meanwhile. A run that no page has shown for some seconds ends by itself.
"""
