"""Races found in a project's own test suite: recorded, derived as candidates, and confirmed by the explorer."""
