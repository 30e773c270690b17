"""Numbers of bytes as text."""

_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def size(number: float) -> str:
    """A number of bytes in the unit that fits: 12 bytes, 3.4 KiB, 5.6 GiB."""
    for unit, name in _UNITS:
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{int(number)} bytes"
