"""Tries in the project's tests what may race: forks a request, and hands both to the explorer."""
