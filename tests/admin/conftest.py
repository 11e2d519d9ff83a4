"""Fixtures of the admin's tests."""

from tests.browser import chromium, logged_in, staff_page

__all__ = ["chromium", "logged_in", "staff_page"]
