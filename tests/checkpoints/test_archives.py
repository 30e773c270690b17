"""Archives of models: read like their folders; names, kinds and sizes are checked before anything is unpacked."""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import pytest
import torch

from elmo_fast import ElmoEmbedder
from elmo_fast.checkpoints import archives, file_beside, load_checkpoint, model_files
from elmo_fast.cli.main import main
from elmo_fast.errors import CheckpointError
from tests.weights import make_weights


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


def test_errors_name_the_archive_not_the_temporary_folder(folder, tmp_path, capsys):
    """Before the model is read, too."""
    make_weights(tmp_path / "second")
    for file in (tmp_path / "second").iterdir():
        shutil.copy(file, folder / f"other_{file.name}")
    path = shutil.make_archive(tmp_path / "packed", "zip", folder)
    with pytest.raises(CheckpointError, match=rf"^{path} contains several models: ") as actual:
        model_files(path)
    assert "temporary" not in str(actual.value)
    assert main(["embed", str(tmp_path / "in.txt"), str(tmp_path / "out.hdf5"), "--top", "--model", path]) == 2
    assert path in (message := capsys.readouterr().err)
    assert "temporary" not in message


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
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def tarred(path, *members):
    """members: (name, size stated, content or None) or TarInfos"""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def of_type(kind, target="/etc/passwd"):
    info = tarfile.TarInfo("options.json")
    info.type, info.linkname = kind, target
    return info


NAMES = ["../evil", "a/../../evil", "/evil", "..\\evil", "C:\\evil", "C:evil", "\\\\server\\share\\evil"]


def test_a_name_that_is_empty_is_refused(tmp_path, temporary):
    path = zipped(tmp_path / "model.zip", ("weights", b""))
    path.write_bytes(path.read_bytes().replace(b"weights", b"\0eights"))
    with pytest.raises(CheckpointError, match=r"model[.]zip: '' is a name outside the archive"):
        archives.unpacked(path)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_outside_the_archive_is_refused(tmp_path, temporary, name):
    for path in (
        zipped(tmp_path / "a.zip", ("ok", b""), (name, b"x")),
        tarred(tmp_path / "a.tgz", ("ok", b""), (name, b"x")),
    ):
        with pytest.raises(
            CheckpointError, match=rf"^{path}: '.*evil' is a name outside the archive; it is not unpacked$"
        ):
            load_checkpoint(path)
    assert os.listdir(temporary) == []
    assert not (tmp_path / "evil").exists()


def test_links_devices_and_encrypted_files_are_refused(tmp_path, temporary):
    link = zipfile.ZipInfo("options.json")
    link.external_attr = 0o120777 << 16
    paths = [zipped(tmp_path / "link.zip", (link, b"/etc/passwd"))]
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
    paths += [tarred(tmp_path / f"{kind[0]}.tar.gz", (of_type(kind), b"")) for kind in kinds]
    for path in paths:
        with pytest.raises(CheckpointError, match=r"'options\.json' is a link or a device; only files and folders are"):
            load_checkpoint(path)
    content = zipped(tmp_path / "locked.zip", ("options.json", b"{}")).read_bytes()
    place = content.index(b"PK\x01\x02") + 8
    (tmp_path / "locked.zip").write_bytes(content[:place] + b"\x01" + content[place + 1 :])
    with pytest.raises(CheckpointError, match=r"'options\.json' is an encrypted file"):
        load_checkpoint(tmp_path / "locked.zip")
    assert os.listdir(temporary) == []


def test_a_bomb_is_refused_by_the_sizes_that_it_states(tmp_path, temporary, monkeypatch):
    """Too many bytes, more than the disk has free, too many members, and a name of gigabytes."""
    bomb = zipped(tmp_path / "bomb.zip", ("small", b""), ("zeros", bytes(3 << 20)))
    monkeypatch.setattr(archives, "MOST_BYTES", 2 << 20)
    with pytest.raises(CheckpointError, match=r"too large from 'zeros' on: 3\.0 MiB in 2 members; at most 2\.0 MiB"):
        load_checkpoint(bomb)
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(9, 9, 1 << 20))
    with pytest.raises(
        CheckpointError, match=r"16\.0 GiB in 10,000 are read, and 1\.0 MiB are free in .*temporary \(TMPDIR"
    ):
        load_checkpoint(bomb)
    monkeypatch.setattr(archives, "MOST_MEMBERS", 1)
    with pytest.raises(CheckpointError, match=r"from 'two' on: 2 bytes in 2 members"):
        load_checkpoint(tarred(tmp_path / "many.tgz", ("one", b"1"), ("two", b"2")))
    longest = of_type(tarfile.GNUTYPE_LONGNAME)
    longest.size = 1 << 32  # a name of 4 GiB, of which the archive holds the beginning
    (tmp_path / "name.tar.gz").write_bytes(gzip.compress(longest.tobuf(tarfile.GNU_FORMAT) + bytes(4 << 20)))
    with pytest.raises(CheckpointError, match=r"name\.tar\.gz: the archive is damaged.*a header of more than 1 MiB"):
        load_checkpoint(tmp_path / "name.tar.gz")
    assert os.listdir(temporary) == []


def test_what_is_wrong_is_said_with_the_archive_and_the_member(folder, tmp_path, temporary, monkeypatch):
    path = zipped(tmp_path / "a.zip", ("wiki/options.json", b"{}"), ("wiki/model.hdf5", b"x"))
    with pytest.raises(CheckpointError, match=rf"^{path}/options\.json: lstm: wanted an object"):
        load_checkpoint(path)
    content = path.read_bytes()
    place = content.index(b"PK\x01\x02") + 16  # the first member's checksum; a changed file is unpacked again
    path.write_bytes(content[:place] + b"1234" + content[place + 4 :])
    with pytest.raises(CheckpointError, match=r"a\.zip: wiki/options\.json in it is damaged \(Bad CRC-32"):
        load_checkpoint(path)
    # The size that the second member states, which is stored as it is: 1 byte.
    place = content.rindex(b"PK\x01\x02") + 24
    path.write_bytes(content[:place] + b"\x09" + content[place + 1 :])
    with pytest.raises(CheckpointError, match=r"a\.zip: wiki/model\.hdf5 in it is damaged \(1 bytes of 9\)"):
        load_checkpoint(path)
    with pytest.warns(UserWarning, match="Duplicate name"):
        zipped(path, ("options.json", b"{}"), ("options.json", b"{}"))
    with pytest.raises(CheckpointError, match=r"a\.zip: 'options\.json' is in it twice"):
        load_checkpoint(path)
    with pytest.raises(CheckpointError, match=r"a\.zip: a/b cannot be unpacked \("):
        load_checkpoint(zipped(path, ("a", b"{}"), ("a/b", b"{}")))
    (tmp_path / "b.tar.gz").write_bytes(b"not packed")
    with pytest.raises(CheckpointError, match=r"b\.tar\.gz: the archive .*\(Not a gzipped file"):
        load_checkpoint(tmp_path / "b.tar.gz")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(CheckpointError, match=r"a\.zip: there is no temporary folder to unpack it .*; set TMPDIR"):
        load_checkpoint(path)
