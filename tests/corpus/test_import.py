"""What other processes load to read text must not bring torch along, nor must the commands that start them."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["word_counts", "folder", "encoding"])
def test_text_is_read_and_written_without_torch(module):
    code = f"import elmo_fast.corpus.{module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_streams_do_need_torch():
    """The question above can be answered otherwise."""
    code = "from elmo_fast.corpus import Stream; import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 1


def test_an_unknown_name_is_refused_with_the_known_ones():
    from elmo_fast import corpus

    with pytest.raises(AttributeError, match=r"has no attribute 'Streams'; it has: .*Stream, "):
        _ = corpus.Streams
