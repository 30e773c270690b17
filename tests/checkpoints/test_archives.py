"""Archives of models: read like their folders; nothing is written outside of the temporary one."""

import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import pytest
import torch

from elmo_fast import ElmoEmbedder
from elmo_fast.checkpoints import file_beside, load_checkpoint, model_files
from elmo_fast.errors import CheckpointError
from tests.support.weights import make_weights


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """An empty folder in which archives are unpacked."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


@pytest.fixture
def folder(tmp_path):
    """A folder with a model and its vocabulary."""
    make_weights(tmp_path / "model", softmax=5)
    (tmp_path / "model" / "vocab.txt").write_text("<S>\n</S>\n<UNK>\na\nb\n")
    return tmp_path / "model"


@pytest.mark.parametrize("kind", ["zip", "gztar", "tar"])
@pytest.mark.parametrize("inside", [False, True])
def test_an_archive_is_read_as_its_folder(folder, tmp_path, kind, inside):
    """Files at the top of the archive or in one folder."""
    path = shutil.make_archive(
        tmp_path / "packed", kind, folder.parent if inside else folder, "model" if inside else "."
    )
    state, options = load_checkpoint(folder)
    read, read_options = load_checkpoint(path)
    assert read_options == options
    assert all(torch.equal(read[name], state[name]) for name in state)
    assert file_beside(path).read_bytes() == (folder / "vocab.txt").read_bytes()
    assert model_files(path)[0].parent == model_files(path)[0].parent  # unpacked once
    for embedder in (ElmoEmbedder.from_pretrained(path), ElmoEmbedder(path, None)):
        assert torch.equal(
            embedder.elmo_bilm.state_dict()["_token_embedder.char_conv_0.bias"],
            state["_token_embedder.char_conv_0.bias"],
        )


def test_a_process_leaves_nothing_at_its_end(folder, tmp_path, temporary):
    """A forked process removes nothing; what a killed one left is removed."""
    path = shutil.make_archive(tmp_path / "packed", "zip", folder)
    code = (
        "import os, sys\nfrom elmo_fast.checkpoints.archives import unpacked\n"
        "if not (child := os.fork()):\n"
        f"    unpacked({path!r})\n    os.kill(os.getpid(), 9)\n"
        "os.waitpid(child, 0)\n"
        f"assert len(os.listdir({str(temporary)!r})) == 1\nfolder = unpacked({path!r})\n"
        "if not (child := os.fork()):\n    sys.exit()\n"
        "os.waitpid(child, 0)\n"
        f"assert folder.is_dir()\nassert len(os.listdir({str(temporary)!r})) == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(temporary)}, check=True)
    assert os.listdir(temporary) == []


def zipped(path, *members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def tarred(path, kind, name):
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info, io.BytesIO())
    return path


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil"])
def test_nothing_is_written_outside_the_folder(tmp_path, temporary, name):
    """Members of a zip stay inside; a tar with such a member, a link to the outside or a device is refused."""
    link = zipfile.ZipInfo("options.json")
    link.external_attr = 0o120777 << 16
    for path in (
        zipped(tmp_path / "a.zip", (name, b"{}"), (link, b"/etc/passwd")),
        tarred(tmp_path / "a.tgz", tarfile.REGTYPE, name),
        *(tarred(tmp_path / f"{kind[0]}.tgz", kind, "options.json") for kind in (tarfile.SYMTYPE, tarfile.CHRTYPE)),
    ):
        with pytest.raises(CheckpointError, match=rf"/{path.name}"):
            load_checkpoint(path)
    assert not [each for place in (tmp_path, temporary) for each in place.iterdir() if "evil" in each.name]
    assert not [each for each in temporary.rglob("*") if each.is_symlink()]


def test_what_cannot_be_unpacked_is_said_with_the_archive_and_leaves_nothing(folder, tmp_path, temporary, monkeypatch):
    path = zipped(tmp_path / "a.zip", ("options.json", b"{}"), ("model.hdf5", b"x"))
    whole = path.read_bytes()
    place = whole.index(b"PK\x01\x02") + 16  # the first member's checksum; a changed file is unpacked again
    path.write_bytes(whole[:place] + b"1234" + whole[place + 4 :])
    packed = bytearray(pathlib.Path(shutil.make_archive(tmp_path / "whole", "gztar", folder)).read_bytes())
    packed[-8] ^= 1  # in gzip's checksum, behind all members
    (tmp_path / "sum.tar.gz").write_bytes(packed)
    (tmp_path / "b.tar.gz").write_bytes(b"not packed")
    for name, reason in (
        ("a.zip", "Bad CRC-32"),
        ("sum.tar.gz", "CRC check failed"),
        ("b.tar.gz", "Not a gzipped file"),
    ):
        with pytest.raises(CheckpointError, match=rf"^{tmp_path}/{name}: cannot be unpacked in .*temporary \({reason}"):
            load_checkpoint(tmp_path / name)
    path.write_bytes(whole)
    with pytest.raises(CheckpointError, match=r"a\.zip/options\.json: lstm: wanted an object"):
        load_checkpoint(path)
    assert len(list(temporary.iterdir())) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(CheckpointError, match=r"b\.tar\.gz: there is no temporary folder to unpack it .*; set TMPDIR"):
        load_checkpoint(tmp_path / "b.tar.gz")
