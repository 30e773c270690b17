"""Files cut anywhere, or with bytes changed."""

from hypothesis import strategies as st

from elmo_fast.checkpoints import state_shapes
from elmo_fast.errors import CheckpointError


def damaged_bytes(data, content):
    """`content` as hypothesis' `data` damages it."""
    if data.draw(st.booleans(), "cut"):
        return content[: data.draw(st.integers(0, len(content) - 1), "length")]
    changed = bytearray(content)
    places = st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255))
    for place, value in data.draw(st.lists(places, min_size=1, max_size=20), "bytes"):
        changed[place] = value
    return bytes(changed)


def check_damaged(read, intact, data):
    """`read` gives tensors of the wanted shapes, or a CheckpointError that names the file; nothing else.

    intact: the options, the file's content, and the path for what is made of it
    """
    options, content, path = intact
    path.write_bytes(damaged_bytes(data, content))
    try:
        state = read(path, options)
    except CheckpointError as error:
        assert path.name in str(error)  # noqa: PT017
        return
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == state_shapes(options, state)
