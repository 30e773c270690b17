"""Measures on the card that is there what the code cannot know, and what others would run in its place."""

from elmo_fast.tuning.measurements import Found, tune

__all__ = ["Found", "tune"]
