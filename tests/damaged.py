"""Files cut anywhere, or with bytes changed."""

from hypothesis import strategies as st


def damaged_bytes(data, content):
    """`content` as hypothesis' `data` damages it."""
    if data.draw(st.booleans(), "cut"):
        return content[: data.draw(st.integers(0, len(content) - 1), "length")]
    changed = bytearray(content)
    places = st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255))
    for place, value in data.draw(st.lists(places, min_size=1, max_size=20), "bytes"):
        changed[place] = value
    return bytes(changed)
