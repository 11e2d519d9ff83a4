"""A small shop as projects write them: an app whose code races, and its twin whose code does not.

The two apps have the same names throughout, so that a diff of their folders shows nothing but the remedies. The folder
is also a project of its own, ``seeded_shop``, with settings and a test suite that knows nothing of locking;
`tests.support.seeded_shop` copies and runs it.
"""
