"""Sentences in, numpy arrays out."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

import torch
from torch import Tensor

from elmo_fast.checkpoints import ElmoOptions, State, load_checkpoint, pretrained_folder
from elmo_fast.devices import device_named
from elmo_fast.errors import ElmoFastError, not_a_string
from elmo_fast.files import hdf5_replacing, replaces
from elmo_fast.modules._loading import vocabulary_of
from elmo_fast.modules.bilm import BiLM
from elmo_fast.modules.boundaries import remove_sentence_boundaries
from elmo_fast.modules.sentence_vectors import Array, embed_batch, embed_batches

BATCH_SIZE = 64
TOKENISED = "a list of words (text.split() makes one at blanks)"
OUTPUT_FORMATS = ("all", "top", "average")


class ElmoEmbedder:
    """All layers of a pretrained biLM for tokenised sentences: one array [L+1, T, 2D] float32 per sentence.

    The LSTM's state is carried from batch to batch, as ELMo always did: the same sentence gives other vectors the
    second time. `stateful=False`, or `reset_states()` in between, gives the same ones.

    Args:
        options_file, weight_file: as BiLM's.
        cuda_device: index of the GPU; -1: the CPU.
        settings: stateful, unique_words, cache_size, precision, backend, vocabulary: as BiLM's.

    Raises: ElmoFastError, CheckpointError.

    Source: AllenNLP 0.9's `ElmoEmbedder`.
    """

    def __init__(
        self,
        options_file: str | os.PathLike[str] | ElmoOptions,
        weight_file: str | os.PathLike[str] | State | None,
        cuda_device: int = -1,
        **settings: Any,
    ) -> None:
        if cuda_device >= 0:
            device_named(f"cuda:{cuda_device}", "cuda_device")
        self.elmo_bilm = BiLM(options_file, weight_file, **settings)
        self.cuda_device = cuda_device
        if cuda_device >= 0:
            self.elmo_bilm = self.elmo_bilm.cuda(cuda_device)

    @classmethod
    def from_pretrained(cls, model: str | os.PathLike[str], cuda_device: int = -1, **settings: Any) -> "ElmoEmbedder":
        """The embedder of a folder that holds a model or a run, or of a name of the hub ("user/name@revision").

        Args:
            cuda_device, settings: as ElmoEmbedder's.

        Raises: ElmoFastError, CheckpointError.
        """
        folder = pretrained_folder(model)
        state, options = load_checkpoint(folder)
        if options.char_cnn is None and settings.get("vocabulary") is None:
            settings["vocabulary"] = vocabulary_of(folder)
        return cls(options, state, cuda_device, **settings)

    def reset_states(self) -> None:
        """Forgets the carried state: the next batch starts from zeros."""
        self.elmo_bilm.reset_states()

    @torch.no_grad()
    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """The vectors of B tokenised sentences: (activations [B, L+1, T, 2D], mask [B, T] bool)."""
        ids = self.elmo_bilm.batch_to_ids(batch)
        output = self.elmo_bilm(ids.cuda(self.cuda_device) if self.cuda_device >= 0 else ids)
        pairs = [remove_sentence_boundaries(layer, output["mask"]) for layer in output["activations"]]
        return torch.stack([layer for layer, _ in pairs], dim=1), pairs[0][1]

    def embed_sentence(self, sentence: Sequence[str]) -> Array:
        """The vectors of one tokenised sentence, [L+1, T, 2D]. Raises: ElmoFastError for a string."""
        not_a_string(sentence, "sentence", TOKENISED)
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Array]:
        """The vectors of each tokenised sentence, [L+1, T, 2D], run as one batch.

        An empty sentence gives [L+1, 0, 2D]. Alone in a batch it is not run (the state stays as it is), as it never
        was. Raises: ElmoFastError where the batch or a sentence of it is a string, in place of a list.
        """
        not_a_string(batch, "batch", f"a list of sentences, each {TOKENISED}")
        return embed_batch(self.elmo_bilm, list(_checked(batch)), stateful=self.elmo_bilm.stateful)

    def embed_sentences(self, sentences: Iterable[Sequence[str]], batch_size: int = BATCH_SIZE) -> Iterator[Array]:
        """The vectors of each tokenised sentence, in order, `batch_size` sentences at a time."""
        not_a_string(sentences, "sentences", f"a list of sentences, each {TOKENISED}")
        for batch in embed_batches(
            self.elmo_bilm, _checked(sentences), stateful=self.elmo_bilm.stateful, batch_size=batch_size, window=0
        ):
            yield from batch.vectors

    def embed_file(
        self,
        input_file: TextIO,
        output_file_path: str | os.PathLike[str],
        output_format: str = "all",
        batch_size: int = BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Writes the vectors of a file's sentences to HDF5; the file appears when it is complete.

        Args:
            input_file: one sentence per line, words separated by blanks; closed at the end.
            output_file_path: HDF5: dataset "0", "1", ... per line, [L+1, T, 2D] ("all") or [T, 2D] ("top", "average"),
                and "sentence_to_index", a JSON object from each sentence to its dataset.
            output_format: "all" layers, the "top" one, or their "average".
            batch_size: sentences run at a time.
            forget_sentences: leaves "sentence_to_index" out.
            use_sentence_keys: names the datasets by the sentences, and leaves "sentence_to_index" out.

        Raises: ElmoFastError: an unknown format, one file for both, an empty line, a sentence that cannot name a
            dataset; OSError.
        """
        if output_format not in OUTPUT_FORMATS:
            raise ElmoFastError(f"output_format must be one of {', '.join(OUTPUT_FORMATS)}; got {output_format!r}")
        name = getattr(input_file, "name", None)
        if isinstance(name, str) and replaces(output_file_path, name):
            raise ElmoFastError(f"output_file_path must be another file than input_file; got {name!r} for both")
        sentences = [line.strip() for line in input_file]
        _check_lines(sentences, use_sentence_keys)
        keys = sentences if use_sentence_keys else [str(i) for i in range(len(sentences))]
        arrays = self.embed_sentences((sentence.split() for sentence in sentences), batch_size)
        with hdf5_replacing(output_file_path) as (file, written):
            for key, array in zip(keys, arrays, strict=True):
                file.create_dataset(key, data=_formatted(array, output_format))
                written.check()
            if not (forget_sentences or use_sentence_keys):
                import h5py

                index = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())
                index[0] = json.dumps(dict(zip(sentences, keys, strict=True)))
        input_file.close()


def _checked(sentences: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
    for number, sentence in enumerate(sentences):
        not_a_string(sentence, f"sentence {number}", TOKENISED)
        yield sentence


def _formatted(array: Array, output_format: str) -> Array:
    if output_format == "average":
        return array.mean(axis=0)
    return array if output_format == "all" else array[-1]


def _check_lines(sentences: list[str], as_keys: bool) -> None:
    if empty := [i for i, sentence in enumerate(sentences) if not sentence]:
        raise ElmoFastError(f"the input must have no empty line; got {len(empty)}, the first at index {empty[0]}")
    if not as_keys:
        return
    if len(set(sentences)) < len(sentences):
        raise ElmoFastError("use_sentence_keys needs distinct sentences; leave it out to name the datasets by line")
    if bad := [sentence for sentence in sentences if "/" in sentence or sentence == "."]:
        raise ElmoFastError(
            "HDF5 takes '/' and '.' in a name for folders, so that sentences with them cannot name datasets: "
            f"{len(bad)} do, the first is {bad[0]!r:.80}; leave use_sentence_keys out to name them by line"
        )
