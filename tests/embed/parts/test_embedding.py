"""Parts by one process and by several, killed and not: merged, they are the file that one process writes."""

import errno
import json
import os
import signal
import threading
import time

import pytest

from elmo_fast.cli.embed import Rank, rank_of
from elmo_fast.embed import embed_parts
from elmo_fast.embed.parts.plan import plan_parts
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.elmo_lstm import ElmoLstm
from elmo_fast.text.sources import Lines
from tests.embed.parts.conftest import PART, embed, made_parts
from tests.support.command_line import elmo_fast
from tests.support.hooks import called
from tests.torture.children import fork

PARTS = [f"part-{number:05d}" for number in range(7)]
FORKED = ("--device", "cpu")  # a child cannot use a GPU that its parent used


def path_of(handle):
    """Return the file or folder of an open handle."""
    return os.readlink(f"/proc/self/fd/{handle}")


@pytest.mark.parametrize(
    "words",
    [
        ("--all",),
        ("--top", "--dtype", "f16", "--forget-sentences"),
        ("--all", "--format", "safetensors", "--max-tokens", "8"),
        ("--average", "--format", "npz"),
    ],
)
def test_merged_parts_are_the_file_of_one_process_byte_for_byte(place, tmp_path, words):
    folder = made_parts(place, tmp_path / "out", *words)
    assert sorted(os.listdir(folder)) == ["manifest.json", *PARTS, "parts.json"]
    assert embed(place, tmp_path / "alone", *words).returncode == 0
    done = elmo_fast("merge", folder, tmp_path / "merged", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "merged").read_bytes() == (tmp_path / "alone").read_bytes()


def test_names_of_datasets_and_records_of_fasta(place, tmp_path):
    """Keys are checked over all parts; a FASTA's are those of one process."""
    done = embed(place, tmp_path / "out", "--shard", "0/1", "--use-sentence-keys")
    assert "lines 21 and 103 are the same sentence" in done.stderr
    assert not (tmp_path / "out").exists()
    fasta = tmp_path / "p.fasta"
    fasta.write_text("".join(f">P{n}\n{'MKVLA'[: n % 5 + 1]}\n" for n in range(40)))
    words = ("--format-in", "fasta")
    folder = made_parts(place, tmp_path / "out", *words, source=fasta)
    assert embed(place, tmp_path / "alone", *words, source=fasta).returncode == 0
    assert elmo_fast("merge", folder, tmp_path / "merged", "-q").returncode == 0
    assert (tmp_path / "merged").read_bytes() == (tmp_path / "alone").read_bytes()
    flat = made_parts(place, tmp_path / "flat", *words, "--format", "npz", source=fasta)
    assert "names are not checked" in elmo_fast("merge", flat, tmp_path / "x", "--format", "hdf5").stderr


def test_processes_share_the_parts(place, tmp_path):
    """Part p is process p mod 3's, also when they run at once; the plan is the first one's."""
    logs = [tmp_path / f"log-{index}" for index in range(3)]

    def worker(index):
        done = embed(place, tmp_path / "out", "--shard", f"{index}/3", *FORKED)
        logs[index].write_text(done.stderr)
        assert done.returncode == 0, done.stderr

    children = [fork(lambda index=index: worker(index)) for index in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert [int(log.read_text().rsplit(" wrote ", 1)[1].split()[0]) for log in logs] == [3, 2, 2]
    assert sorted(os.listdir(tmp_path / "out")) == ["manifest.json", *PARTS, "parts.json"]
    assert elmo_fast("merge", tmp_path / "out", tmp_path / "merged", "-q").returncode == 0
    assert (tmp_path / "merged").read_bytes() == (place / "alone.hdf5").read_bytes()


def test_each_process_writes_its_own_parts_alone(embedder, source, tmp_path):
    """And returns; with another number of processes the rest is written."""
    folder, settings = tmp_path / "out", {"output_format": "average", "batch_size": 1, "part_sentences": PART}
    assert embed_parts(embedder, source, folder, (1, 3), **settings).parts == 2
    assert sorted(os.listdir(folder)) == ["manifest.json", "part-00001", "part-00004", "parts.json"]
    assert embed_parts(embedder, source, folder, (1, 3), **settings).parts == 0
    assert embed_parts(embedder, source, folder, (0, 2), **settings).parts == 3
    assert embed_parts(embedder, source, folder, (1, 2), **settings).parts == 2
    assert sorted(os.listdir(folder)) == ["manifest.json", *PARTS, "parts.json"]


def test_a_killed_process_resumes(place, tmp_path):
    """It is killed within a part; a rerun writes that part and the rest."""
    folder = tmp_path / "out"

    def dies_in_its_second_part():
        batches = []

        def dying(inputs):
            batches.append(inputs)
            if len(batches) > PART:
                while not (folder / "part-00000").exists():  # the first one is put in its place meanwhile
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGKILL)

        with called(ElmoLstm, dying):
            embed(place, folder, "--shard", "0/1", *FORKED)

    child = fork(dies_in_its_second_part)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    left = sorted(os.listdir(folder))
    assert [name for name in left if not name.startswith(".")] == ["manifest.json", "part-00000", "parts.json"]
    assert "1 of 7 parts are there; run the same" in elmo_fast("merge", folder, tmp_path / "merged").stderr
    stamp = (folder / "part-00000" / "vectors.safetensors").stat().st_mtime_ns
    done = embed(place, folder, "--shard", "0/1", *FORKED)
    assert "1 of 7 parts are there" in done.stderr
    assert "wrote 6 of 7 parts" in done.stderr
    assert (folder / "part-00000" / "vectors.safetensors").stat().st_mtime_ns == stamp
    assert sorted(os.listdir(folder)) == ["manifest.json", *PARTS, "parts.json"]
    assert elmo_fast("merge", folder, tmp_path / "merged", "-q").returncode == 0
    assert (tmp_path / "merged").read_bytes() == (place / "alone.hdf5").read_bytes()


def test_progress_counts_the_tokens_of_this_process(embedder, source, tmp_path):
    lines, settings = [], {"output_format": "average", "batch_size": 1, "part_sentences": PART}
    embed_parts(embedder, source, tmp_path / "out", (0, 2), **settings, progress=lambda *both: lines.append(both))
    parts = json.loads((tmp_path / "out" / "parts.json").read_text())["parts"]
    total = sum(part["tokens"] for part in parts[::2])
    assert lines[-1] == (total, total)
    assert sorted(lines) == lines
    assert len({done for done, _ in lines}) > 25


def test_sizes_of_parts(embedder, tmp_path):
    """At most an eighth of a process's share and 16 windows; a short text is one part."""

    def parts(lines, processes):
        most, actual = plan_parts(Lines("x", ["a b"] * lines), 16, processes, None, False)
        assert all(part.tokens == 2 * part.sentences for part in actual)
        return most, [part.sentences for part in actual]

    assert parts(16 * 16, 1) == (32, [32] * 8)
    assert parts(40, 4) == (16, [16, 16, 8])
    assert parts(16 * 400, 2)[0] == 16 * 16
    embed_parts(embedder, Lines("x", ["a b"] * 16), tmp_path / "one", (0, 4), batch_size=1)
    assert sorted(os.listdir(tmp_path / "one")) == ["manifest.json", "part-00000", "parts.json"]


def test_a_part_is_put_in_its_place_while_the_next_one_is_embedded(embedder, source, tmp_path, monkeypatch):
    """Part 0 reaches the disk when part 1 is computed: it would wait forever if nothing were computed meanwhile."""
    computed, waited, batches, fsync = threading.Event(), [], [], os.fsync

    def running(inputs):
        batches.append(inputs)
        if len(batches) == 2 * PART:
            computed.set()

    def flushed(handle):
        if ".part-00000." in path_of(handle):
            waited.append(computed.wait(20))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", flushed)
    with called(ElmoLstm, running):
        embed_parts(embedder, source, tmp_path / "out", output_format="average", batch_size=1, part_sentences=PART)
    assert all(waited)
    assert len(waited) >= 3  # names, vectors and manifest


def test_a_process_that_is_killed_after_the_rename_leaves_nothing(embedder, source, tmp_path, monkeypatch):
    """What it wrote is there, so nobody begins it again: files next to a part, or to the folder, are removed when all
    parts exist."""
    folder, settings = tmp_path / "out", {"output_format": "average", "batch_size": 1, "part_sentences": PART}

    def dies():
        fsync = os.fsync

        def killed(handle):
            if path_of(handle) == str(folder) and (folder / "part-00002").exists():
                os.kill(os.getpid(), signal.SIGKILL)
            fsync(handle)

        os.fsync = killed
        embed_parts(embedder, source, folder, **settings)

    assert os.waitstatus_to_exitcode(os.waitpid(fork(dies), 0)[1]) == -signal.SIGKILL
    assert [name for name in os.listdir(folder) if name.startswith(".part-00002.")]
    (tmp_path / ".out.dead_one.partial").mkdir()
    assert embed_parts(embedder, source, folder, **settings).parts == 4
    assert not [name for name in (*os.listdir(folder), *os.listdir(tmp_path)) if name.startswith(".")]


def test_what_fails_while_a_part_is_put_in_its_place_ends_the_process(embedder, source, tmp_path, monkeypatch):
    """The part that is embedded then is still put in its place, no other is begun; a rerun makes the rest."""
    folder, settings = tmp_path / "out", {"output_format": "average", "batch_size": 1, "part_sentences": PART}
    fsync = os.fsync

    def full(handle):
        if ".part-00002." in path_of(handle):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*part-00002'"):
        embed_parts(embedder, source, folder, **settings)
    assert sorted(os.listdir(folder)) == ["manifest.json", "part-00000", "part-00001", "part-00003", "parts.json"]
    monkeypatch.undo()
    assert embed_parts(embedder, source, folder, **settings).parts == 4


def test_the_place_of_a_process():
    """--shard before torchrun before srun; the script of a SLURM job, which is no step, works alone."""
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "LOCAL_RANK": "1"}
    step = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "2"}
    assert rank_of("1/3", torchrun) == Rank(1, 3)
    assert rank_of(None, torchrun | step) == Rank(3, 4, 1)
    assert rank_of(None, step) == Rank(5, 8, 2)
    assert rank_of(None, {name: step[name] for name in ("SLURM_PROCID", "SLURM_NTASKS")}) is None
    assert rank_of(None, step | {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}) is None
    assert rank_of(None, {}) is None
    for wrong in ("3/3", "1", "a/b", "-1/2", "0/0"):
        with pytest.raises(ElmoFastError, match="--shard must be i/N with i from 0 to N-1, such as 0/4; got"):
            rank_of(wrong, {})
    with pytest.raises(ElmoFastError, match="WORLD_SIZE must be a number; got 'x'"):
        rank_of(None, torchrun | {"WORLD_SIZE": "x"})
    with pytest.raises(ElmoFastError, match="SLURM_PROCID=9 must be less than SLURM_NTASKS=8"):
        rank_of(None, step | {"SLURM_PROCID": "9"})
