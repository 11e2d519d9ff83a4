"""A club's pages in twenty kinds of races that the seeded shop has not, and the same pages without them.

The two modules of views, ``racing`` and ``correct``, have the same names; a diff of them shows the remedies alone. The
folder is also a project of its own, as the seeded shop is.
"""
