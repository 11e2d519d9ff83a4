"""Pages of the lab: races that go on while pages show how far they are, and the races that the finder has found.

A run is a process of its own; its progress and its reports are files on the host. A page starts a run and answers at
once; any process of the server on this host can show it, stop it, or be started again meanwhile. A run that no page has
shown for some seconds ends by itself.
"""
