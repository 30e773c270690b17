"""Parts that do not belong together, or are damaged: one sentence that names the file, and nothing half written."""

import json
import os
import shutil

import pytest

from elmo_fast.embed import embed_parts
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.text.sources import Lines
from tests.embed.parts.conftest import embed
from tests.support.command_line import elmo_fast


def error_of(done):
    """The one sentence."""
    assert done.returncode == 2, done.stderr
    *_, line = done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    return line


@pytest.mark.parametrize(
    ("words", "settings", "message"),
    [
        ((), {"model": "other"}, "begun with another model or other options (model_sha256 was '"),
        (("--top", "--part-lines", "32"), {}, "(layers was 'average', now 'top'; part_lines was 16, now 32); give"),
    ],
)
def test_another_model_or_option_than_the_folders(place, whole, words, settings, message):
    before = sorted(path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file())
    shutil.rmtree(whole / "part-00002")
    line = error_of(embed(place, whole, "--shard", "0/1", *words, **settings))
    assert message in line
    assert str(whole) in line
    left = sorted(path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file())
    assert set(left) < set(before)
    assert not (whole / "part-00002").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda lines: [*lines[:50], "another", *lines[51:]], "lines 49 to 64 differ from those of the text"),
        (lambda lines: [*lines, "one more"], "there are more lines than the 103 of the text"),
        (lambda lines: lines[:-1], "lines 97 to 103 differ"),
        (lambda lines: [lines[0].replace(" ", "  ", 1), *lines[1:]], "lines 1 to 16 differ"),
    ],
)
@pytest.mark.parametrize("missing", [[], ["part-00000"]])
def test_another_text_than_the_folders(place, whole, tmp_path, changed, message, missing):
    """Whatever part holds the difference, and also where nothing is left to do."""
    for part in missing:
        shutil.rmtree(whole / part)
    text = (place / "in.txt").read_text().splitlines()
    (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in changed(text)))
    line = error_of(embed(place, whole, "--shard", "0/1", source=tmp_path / "text.txt"))
    assert message in line
    assert str(tmp_path / "text.txt") in line
    assert [(whole / part).exists() for part in missing] == [False] * len(missing)


def test_a_text_that_changes_while_it_is_embedded(embedder, tmp_path):
    """The part before is put in its place nevertheless."""

    class Changing(Lines):
        reads = 0

        def sentences(self):
            self.reads += 1
            for number, sentence in enumerate(super().sentences()):
                yield sentence._replace(name=f"{sentence.name} {self.reads}" if number == 40 else sentence.name)

    with pytest.raises(ElmoFastError, match="lines 33 to 48 differ"):
        embed_parts(embedder, Changing("x", ["a b"] * 64), tmp_path / "out", batch_size=1, part_sentences=16)
    assert sorted(os.listdir(tmp_path / "out")) == ["manifest.json", "part-00000", "part-00001", "parts.json"]


def test_a_truncated_part_is_named_and_done_again_when_deleted(place, whole, tmp_path):
    vectors = whole / "part-00004" / "vectors.safetensors"
    os.truncate(vectors, vectors.stat().st_size - 4)
    for line in (error_of(embed(place, whole, "--shard", "0/1")), error_of(elmo_fast("merge", whole, tmp_path / "x"))):
        assert f"{vectors}: damaged" in line
    assert not (tmp_path / "x").exists()
    shutil.move(vectors.parent, whole / "part-of-mine")
    assert "6 of 7 parts are there; run the same" in error_of(elmo_fast("merge", whole, tmp_path / "x"))
    assert embed(place, whole, "--shard", "0/1").returncode == 0
    assert "which is read; choose another output" in error_of(elmo_fast("merge", whole, whole))
    for inside in (whole / "manifest.json", vectors):
        assert f"lies in the folder of parts {whole}; give" in error_of(elmo_fast("merge", whole, inside))
    assert elmo_fast("merge", whole, tmp_path / "x", "-q").returncode == 0
    assert (tmp_path / "x").read_bytes() == (place / "alone.hdf5").read_bytes()


@pytest.mark.parametrize("name", ["vectors.safetensors", "names.json"])
def test_a_changed_byte_is_named_by_merge_and_verify(whole, tmp_path, name):
    path = whole / "part-00006" / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    line = error_of(elmo_fast("merge", whole, tmp_path / "x"))
    assert f"{path}: damaged, or changed after it was written" in line
    assert f"delete the folder {path.parent}" in line
    assert os.listdir(tmp_path) == ["out"]


def test_a_changed_plan_is_named(whole, tmp_path):
    plan = whole / "parts.json"
    plan.write_text(plan.read_text().replace('"width": 16', '"width": 17'))
    assert f"{plan}: damaged, or changed after it was written" in error_of(elmo_fast("merge", whole, tmp_path / "x"))
    (whole / "manifest.json").unlink()
    content = json.loads(plan.read_text())
    for parts in ([], content["parts"][1:]):
        plan.write_text(json.dumps(content | {"parts": parts}))
        line = error_of(elmo_fast("merge", whole, tmp_path / "x"))
        assert f"{plan}: parts: wanted one or more, each from where" in line


def test_what_cannot_be_shared_is_refused(place, tmp_path):
    out = tmp_path / "out"
    assert "standard input cannot be shared" in error_of(embed(place, out, "--shard", "0/2", source="-"))
    assert "--part_lines needs --shard, torchrun or srun" in error_of(embed(place, out, "--part-lines", "16"))
    assert "must be a multiple of 16: 16 batches" in error_of(embed(place, out, "--shard", "0/2", "--part-lines", "24"))
    line = error_of(embed(place, out, "--shard", "0/2", "--stateful"))
    assert "in.txt: a text cannot be embedded in parts with carried state, as each sentence's" in line
    assert "; leave out --stateful" in line
    assert not out.exists()
    out.write_text("")
    assert f"{out}: is a file; several processes write a folder" in error_of(embed(place, out, "--shard", "0/2"))
    out.unlink()
    out.mkdir()
    (out / "mine").touch()
    assert f"{out}: holds 'mine' and no parts.json" in error_of(embed(place, out, "--shard", "0/2"))
    assert f"{out}: no folder of parts" in error_of(elmo_fast("merge", out, tmp_path / "x"))
    assert os.listdir(out) == ["mine"]
    assert os.listdir(tmp_path) == ["out"]


def test_swapped_parts_are_named_without_the_manifest_of_the_folder(embedder, tmp_path):
    """Parts of as many tokens and sentences."""
    lines, folder = [f"a{n} b" for n in range(64)], tmp_path / "out"
    settings = {"output_format": "average", "batch_size": 1, "part_sentences": 16}

    def run():
        return embed_parts(embedder, Lines("x", lines), folder, **settings)

    assert run().parts == 4
    (folder / "manifest.json").unlink()
    assert run().parts == 0
    (folder / "part-00001").rename(folder / "x")
    (folder / "part-00002").rename(folder / "part-00001")
    (folder / "x").rename(folder / "part-00002")
    with pytest.raises(CheckpointError, match=r"part-00001.*vectors are not of lines 17 to 32.*; delete the folder"):
        run()
