"""Files that appear whole or not at all."""

import os

import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.text import replacing


def test_the_file_appears_at_the_end_only(tmp_path):
    target = tmp_path / "out"
    with replacing(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
        assert temporary.parent == tmp_path
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_what_was_there(tmp_path, error):
    target = tmp_path / "out"
    target.write_text("old")

    def interrupted():
        with replacing(target) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        interrupted()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_link_keeps_pointing_and_modes_stay(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    with replacing(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640


def test_a_new_file_has_the_usual_mode(tmp_path):
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "out"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


def test_devices_and_folders_are_refused(tmp_path):
    with pytest.raises(ElmoFastError, match="a device or pipe"), replacing("/dev/full"):
        pass
    with pytest.raises(ElmoFastError, match="a folder"), replacing(tmp_path):
        pass
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_named_by_the_target(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent/out"), replacing(tmp_path / "absent" / "out"):
        pass
