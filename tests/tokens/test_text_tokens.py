"""Tokens of a text: where they are, and how one is shown."""

import pytest

from elmo_fast.tokens import in_context

WORDS = ["a", "b", "c", "d", "e", "f", "g"]


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (0, "[a] b c ..."),
        (2, "a b [c] d e ..."),
        (3, "... b c [d] e f ..."),
        (4, "... c d [e] f g"),
        (6, "... e f [g]"),
    ],
)
def test_a_token_is_shown_among_its_neighbours(place, shown):
    """The ellipsis marks what was cut, and only if it is asked for."""
    assert in_context(WORDS, place, 2, ellipsis="...") == shown
    assert in_context(WORDS, place, 2) == shown.removeprefix("... ").removesuffix(" ...")
    assert in_context(WORDS, place, 7, ("**", "**")) == " ".join(WORDS).replace(WORDS[place], f"**{WORDS[place]}**")


def test_tokens_that_are_ellipses_stay():
    assert in_context(["...", "x", "..."], 1, 1) == "... [x] ..."
