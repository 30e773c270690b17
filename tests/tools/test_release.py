"""Which version a wheel gets."""

import elmo_fast
from tools import release


def test_the_version_is_read_from_the_sources():
    assert release.version() == elmo_fast.__version__
