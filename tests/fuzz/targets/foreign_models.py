"""Archives, AllenNLP's task models and bilm-tf's checkpoints: what is damaged is refused, or is what was packed."""

import random
import shutil

from elmo_fast.checkpoints import load_checkpoint, read_adagrad_sums, read_options
from elmo_fast.checkpoints.archives import unpacked
from tests.fuzz import folders
from tests.fuzz.damage import damaged
from tests.fuzz.judge import Wrong, may_refuse
from tests.support.tensor_bundle import arrays_of, write_checkpoint
from tests.support.weights import make_weights


@folders.valid
def checkpoint(folder):
    _, weights = make_weights(folder, softmax=7)
    write_checkpoint(folder, arrays_of(weights), slots=arrays_of(weights), shards=2, most=5)
    (folder / "model.ckpt-1250.index").rename(folder / "model.ckpt-1.index")
    for shard in folder.glob("*.data-*"):
        shard.rename(folder / shard.name.replace("1250", "1"))
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"\n')
    weights.unlink()
    return folder


@folders.valid
def archives(folder):
    made = folder / "made"
    make_weights(made / "a")
    (made / "a" / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    for kind in ("zip", "gztar", "tar"):
        shutil.make_archive(folder / "packed", kind, made)
    shutil.rmtree(made)
    return folder


def case(rng: random.Random) -> None:
    if rng.random() < 0.5:
        _damaged_checkpoint(rng)
    else:
        _damaged_archive(rng)


def _damaged_checkpoint(rng):
    path = folders.damaged_copy(checkpoint(), rng)
    with may_refuse():
        load_checkpoint(path.parent)  # the format's checksums are not compared
        read_adagrad_sums(path.with_name("model.ckpt-1.index"), read_options(path.with_name("options.json")))


def _damaged_archive(rng):
    whole = rng.choice(sorted(archives().iterdir()))
    path = folders.copied(whole)
    path.write_bytes(damaged(rng, path.read_bytes()))
    with may_refuse():
        files = [file for file in unpacked(path).rglob("*") if file.is_file()]
        packed = {file.read_bytes() for file in unpacked(whole).rglob("*") if file.is_file()}
        # A plain tar has no checksum of its files, and an archive may lose files at its end.
        if path.suffix != ".tar" and not {file.read_bytes() for file in files} <= packed:
            raise Wrong(f"foreign_models: {path.name} damaged and believed")
