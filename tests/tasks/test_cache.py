"""The cache of a frozen biLM: the vectors that it gives, and that nothing damaged, cut or foreign is ever believed."""

import os
import re
import shutil
import signal

import pytest
import torch

from elmo_fast import ElmoEmbedder
from elmo_fast.embed.token_files import VECTORS
from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks import Example, cached_layers, load_bilm, model_digest
from elmo_fast.tasks.cache import cached_splits
from tests.corpus.test_processes import until
from tests.support.manylangs import write_model
from tests.support.tolerances import assert_close
from tests.torture.children import fork

TEXT = ["the quick brown fox", "one", "it was the age of foolishness , it was", "the quick brown fox", "Größe zählt"]
EXAMPLES = [Example(line.split(), []) for line in TEXT]


def the_file(folder):
    """The file of the one folder of the cache; no lock and no partial folder is left next to it."""
    (path,) = folder.iterdir()
    assert sorted(os.listdir(path)) == ["manifest.json", VECTORS]
    return path / VECTORS


def computed(bilm, folder, **settings):
    """The cache, and whether the biLM was run for it."""
    runs = []
    hook = bilm.register_forward_hook(lambda *_: runs.append(1))
    try:
        return cached_layers(bilm, EXAMPLES, folder, **settings), bool(runs)
    finally:
        hook.remove()


@pytest.mark.parametrize("max_tokens", [1, 12, 4096])
def test_the_layers_are_the_embedders(tmp_path, files, bilm, max_tokens):
    """Those of each sentence alone, whatever the batch holds; 0 at padding; any order, any layers."""
    cache = cached_layers(bilm, EXAMPLES, tmp_path, max_tokens=max_tokens)
    embedder = ElmoEmbedder(*files, stateful=False)
    expected = [torch.from_numpy(embedder.embed_sentence(example.words)) for example in EXAMPLES]
    layers, lengths = cache.batch([2, 0, 4, 3])
    assert layers.shape == (3, 4, 9, 16)
    assert layers.dtype == torch.float32
    assert lengths.tolist() == [9, 4, 2, 4]
    for row, index in enumerate([2, 0, 4, 3]):
        assert_close("layers", layers[:, row, : lengths[row]], expected[index])
        assert not layers[:, row, lengths[row] :].any()
    torch.testing.assert_close(cache.batch([2, 0, 4, 3], [2, 0])[0], layers[[2, 0]], rtol=0, atol=0)
    torch.testing.assert_close(cache.subset([4, 2, 1]).batch([1, 0])[0], layers[:, [0, 2]], rtol=0, atol=0)
    assert (len(cache), len(cache.subset([4, 1])), cache.num_layers, cache.width) == (5, 2, 3, 16)


def test_the_second_time_nothing_is_computed(tmp_path, files, bilm):
    """Not by another process's biLM of the same weights either; the sentences alone count, not their labels."""
    first, ran = computed(bilm, tmp_path / "a" / "b")
    assert ran
    second, ran = computed(load_bilm(files[0].parent), tmp_path / "a" / "b")
    assert not ran
    torch.testing.assert_close(first.batch(range(5)), second.batch(range(5)), rtol=0, atol=0)
    again = [Example(example.words, ["X"] * len(example.words)) for example in EXAMPLES]
    cached_layers(bilm, again, tmp_path / "a" / "b")
    the_file(tmp_path / "a" / "b")


def test_layers_under_autocast_are_in_a_file_of_their_own(tmp_path, bilm):
    """They differ in the third digit; float32's later runs must not read them."""
    with torch.autocast("cpu", torch.bfloat16):
        rounded = cached_layers(bilm, EXAMPLES, tmp_path).batch(range(5))[0]
    exact = cached_layers(bilm, EXAMPLES, tmp_path).batch(range(5))[0]
    assert torch.equal(exact, cached_layers(bilm, EXAMPLES, tmp_path / "other").batch(range(5))[0])
    assert not torch.allclose(rounded, exact, atol=1e-5)


def test_a_model_whose_directions_are_joined_is_cached(tmp_path):
    write_model(tmp_path / "model", encoder="lstm")
    cached_layers(load_bilm(tmp_path / "model"), EXAMPLES, tmp_path / "cache")
    the_file(tmp_path / "cache")


def test_other_weights_settings_or_sentences_are_other_files(tmp_path, files, bilm):
    """One number of one weight is enough; words that join to the same text are other words."""
    cached_layers(bilm, EXAMPLES, tmp_path)
    cached_layers(load_bilm(files[0].parent, backend="reference"), EXAMPLES, tmp_path)
    cached_layers(load_bilm(files[0].parent, precision="bfloat16"), EXAMPLES, tmp_path)
    cached_layers(bilm, [Example(["the quick", "brown", "fox"], []), *EXAMPLES[1:]], tmp_path)
    cached_layers(bilm, EXAMPLES[:2], tmp_path)
    before = model_digest(bilm)
    with torch.no_grad():
        bilm._elmo_lstm.backward_layer_1.state_projection.weight[0, 0] += 1e-3
    assert model_digest(bilm) != before
    cached_layers(bilm, EXAMPLES, tmp_path)
    assert len(list(tmp_path.iterdir())) == 6


def test_a_damaged_file_is_computed_anew_and_that_is_said(tmp_path, bilm):
    """Once, and then the file is whole again."""
    expected = cached_layers(bilm, EXAMPLES, tmp_path).batch(range(5))[0]
    path = the_file(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1234] + bytes([whole[-1234] ^ 1]) + whole[-1233:])
    with pytest.warns(UserWarning, match=f"^{re.escape(str(path))}: .*it is computed again") as caught:
        cache, ran = computed(bilm, tmp_path)
    assert ran
    assert len(caught) == 1
    torch.testing.assert_close(cache.batch(range(5))[0], expected, rtol=0, atol=0)
    assert the_file(tmp_path).read_bytes() == whole


def test_an_error_while_computing_leaves_nothing(tmp_path, bilm):
    """No part of a file, no lock; and a biLM that carries state has carried none."""
    bilm.stateful = True

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_layers(bilm, EXAMPLES, tmp_path, progress=stop)
    assert list(tmp_path.iterdir()) == []
    assert bilm.stateful
    assert bilm._elmo_lstm._states is None


def test_size_and_folder_are_said_and_the_room_is_checked_for_all_splits(tmp_path, bilm, monkeypatch):
    """Once, before the first of several splits is computed; not for what is there."""
    splits, lines = {"train": (EXAMPLES, None), "dev": (EXAMPLES[:2], None)}, []
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 0, 4 * 3 * 24 * 16))
    with pytest.raises(
        ElmoFastError, match=r"no space left .* take 4\.7 KiB and 4\.5 KiB are free; give another cache"
    ):
        cached_splits(bilm, splits, tmp_path / "c", progress=lambda *_: pytest.fail("computed"), report=lines.append)
    assert (lines, (tmp_path / "c").exists()) == ([], False)
    monkeypatch.undo()
    cached_splits(bilm, splits, tmp_path / "c", report=lines.append)
    assert lines == [f"cache  4.7 KiB in {tmp_path / 'c'}: the biLM's layers for 25 words, computed once"]
    cached_splits(bilm, splits, tmp_path / "c", report=lines.append)
    assert len(lines) == 1


def test_progress_and_the_carried_state(tmp_path, bilm):
    """Words done of all words, the longest sentences first; a biLM that carries state gives the same layers."""
    lines = []
    first = cached_layers(bilm, EXAMPLES, tmp_path / "a", max_tokens=9, progress=lambda *both: lines.append(both))
    assert lines == [(9, 20), (17, 20), (20, 20)]
    bilm.stateful = True
    bilm(torch.ones(2, 3, 50, dtype=torch.long))
    second = cached_layers(bilm, EXAMPLES, tmp_path / "b")
    assert_close("layers", second.batch(range(5))[0], first.batch(range(5))[0])


def sum_of(cache):
    return f"{float(cache.batch(range(5))[0].double().sum()):.6f}"


def computing(bilm, folder, place):
    """Fork a process that says when it computes, and goes on when it is told; its id."""

    def progress(done, total):
        (place / f"{folder.name} computes").touch()
        until((place / f"{folder.name} goes on").exists)

    def work():
        (place / f"{folder.name} sum").write_text(sum_of(cached_layers(bilm, EXAMPLES, folder, progress=progress)))

    child = fork(work)
    until((place / f"{folder.name} computes").exists)
    return child


def test_other_processes_that_share_the_folder(tmp_path, bilm):
    """While one computes another waits, says so, and computes nothing. Where one was killed as it computed, what it
    left is not believed, and goes."""
    shared, left, lines = tmp_path / "shared", tmp_path / "left", []
    first, killed = (computing(bilm, folder, tmp_path) for folder in (shared, left))
    os.kill(killed, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) == -signal.SIGKILL

    def report(line):
        if "waits" in line:
            lines.append(line)
            (tmp_path / "shared goes on").touch()

    cache, ran = computed(bilm, shared, report=report)
    assert not ran
    assert "waits for another process that computes it" in lines[0]
    assert os.waitpid(first, 0)[1] == 0
    assert (tmp_path / "shared sum").read_text() == sum_of(cache)
    the_file(shared)
    assert len(list(left.iterdir())) == 2  # the lock, which nobody holds, and a part of a file
    again, ran = computed(bilm, left)
    assert ran
    assert sum_of(again) == sum_of(cache)
    assert the_file(left).parent.name == the_file(shared).parent.name
