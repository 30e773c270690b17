"""Sentences in, numpy arrays out."""

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from elmo_fast import __version__
from elmo_fast._io.atomic_file import replaces
from elmo_fast._runtime.devices import check_int8_device, device_called, gpu_numbered
from elmo_fast._runtime.progress import Progress
from elmo_fast.checkpoints import ElmoOptions, State, pretrained_folder
from elmo_fast.embed.layers import Layers, column_names, unit_rows
from elmo_fast.embed.layers import pool as pooled
from elmo_fast.embed.sentence_index import SentenceIndex
from elmo_fast.embed.sentence_vectors import Array, run_batches, write_vectors
from elmo_fast.embed.token_files import FORMATS, NAMED, FileLayout, Write, check_room, format_of
from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import ElmoFastError, check_choice, quoted, require
from elmo_fast.modules._loading import explains_missing_arguments
from elmo_fast.modules.bilm import BiLM, with_bilm_keywords
from elmo_fast.modules.boundaries import remove_sentence_boundaries
from elmo_fast.modules.elmo import save_bilm
from elmo_fast.op_choices import POOLS, Pool, Tokenizer
from elmo_fast.text import ScannedText, Source, check_sentences, check_words, checked_sentences, scan
from elmo_fast.text import tokenizer as tokenizer_of
from elmo_fast.text.checks import TEXT_OR_WORDS
from elmo_fast.text.sources import Lines
from elmo_fast.text.tokenizers import RAW_TEXT, Tokenize


class ElmoEmbedder:
    """All layers of a pretrained biLM for tokenized sentences: one array [L+1, T, 2D] float32 per sentence.

    With `from_pretrained`, the same sentence always has the same vectors. The constructor, like AllenNLP's, carries the
    LSTM's state from batch to batch, so a sentence has different vectors the second time; `stateful=False`, or
    `reset_states()` in between, prevents that.

    Args:
        options_file, weight_file: as in BiLM.
        stateful: whether each batch starts from the state in which the last one ended.
        cuda_device: index of the GPU; -1: the CPU.
        settings: unique_words, cache_size, precision, backend, vocabulary, prefix, cuda_graphs: as in BiLM.

    Raises: ElmoFastError, CheckpointError.

    Source: AllenNLP 0.9's `ElmoEmbedder`.
    """

    _advice = (
        "for a model by its name or folder, write ElmoEmbedder.from_pretrained('mini'); AllenNLP's default is "
        "ElmoEmbedder.from_pretrained('original', stateful=True)"
    )

    @with_bilm_keywords
    @explains_missing_arguments
    def __init__(
        self,
        options_file: str | os.PathLike[str] | ElmoOptions,
        weight_file: str | os.PathLike[str] | State | None,
        cuda_device: int = -1,
        *,
        stateful: bool = True,
        **settings: Any,
    ) -> None:
        _check_device(cuda_device, settings)
        with torch.device("cpu"):
            self.elmo_bilm = BiLM(options_file, weight_file, stateful=stateful, **settings)
        self.cuda_device = cuda_device
        paths = [file for file in (weight_file, options_file) if isinstance(file, str | os.PathLike)]
        self.model_name = os.fspath(paths[0]) if paths else ""
        if cuda_device >= 0:
            self.elmo_bilm = self.elmo_bilm.cuda(cuda_device)

    def __repr__(self) -> str:
        bilm, source = self.elmo_bilm, f", from {self.model_name}" if self.model_name else ""
        weights = sum(weight.numel() for weight in bilm.parameters())
        return (
            f"ElmoEmbedder({weights:,} weights, {bilm.num_layers} layers of {bilm.get_output_dim()} dimensions{source})"
        )

    @classmethod
    @with_bilm_keywords
    def from_pretrained(
        cls,
        model: str | os.PathLike[str],
        cuda_device: int = -1,
        *,
        stateful: bool = False,
        **settings: Any,
    ) -> "ElmoEmbedder":
        """Load the embedder of a model.

        Args:
            model: the folder of a model or a run, its archive, a name that `elmo-fast models` lists ("mini",
                "original", ...), or a name on the hub ("user/name@revision").
            stateful: whether state is carried from batch to batch. AllenNLP's does, and its vectors of a sentence then
                depend on the sentences before; by default the same sentence always has the same vectors.
            cuda_device, settings: as in ElmoEmbedder.

        Raises: ElmoFastError, CheckpointError.
        """
        _check_device(cuda_device, settings)
        return cls(pretrained_folder(model), None, cuda_device, stateful=stateful, **settings)

    def get_output_dim(self) -> int:
        """Width of a layer's vectors, 2D."""
        return self.elmo_bilm.get_output_dim()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.elmo_bilm.parameters()).device

    def to(self, device: torch.device | str) -> "ElmoEmbedder":
        """Move the model to a device, in place, and return the embedder. Raises: ElmoFastError for int8 on a GPU."""
        bilm = self.elmo_bilm
        check_int8_device(bilm.precision, device_called(device), bilm.lstm.backend, "leave the model on the CPU")
        bilm.to(device)
        self.cuda_device = (self.device.index or 0) if self.device.type == "cuda" else -1
        return self

    def save_pretrained(self, folder: str | os.PathLike[str], *, precision: str = "float32") -> None:
        """Write a folder that from_pretrained reads; precision: of the stored numbers, as in Elmo.save_pretrained."""
        save_bilm(folder, self.elmo_bilm, precision=precision)

    def reset_states(self) -> None:
        """Forget the carried state: the next batch starts from zeros."""
        self.elmo_bilm.reset_states()

    @torch.no_grad()
    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """Return the vectors of B tokenized sentences: (activations [B, L+1, T, 2D], mask [B, T] bool)."""
        ids = self.elmo_bilm.batch_to_ids(batch)
        output = self.elmo_bilm(ids.to(self.device))
        pairs = [remove_sentence_boundaries(layer, output["mask"]) for layer in output["activations"]]
        return torch.stack([layer for layer, _ in pairs], dim=1), pairs[0][1]

    def embed_sentence(self, sentence: Sequence[str]) -> Array:
        """Return the vectors of one tokenized sentence, [L+1, T, 2D]. Raises: ElmoFastError for a string."""
        check_words(sentence, "sentence")
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Array]:
        """Return the vectors of each tokenized sentence, [L+1, T, 2D], run as one batch.

        An empty sentence gives [L+1, 0, 2D]. A batch of one empty sentence does not run (the state does not change), as
        in AllenNLP. Raises: ElmoFastError if the batch or a sentence is a string instead of a list.
        """
        sentences = list(checked_sentences(batch, "batch"))
        return list(self._vectors(sentences, max(1, len(sentences))))

    def embed_sentences(self, sentences: Iterable[Sequence[str]], batch_size: int | None = None) -> Iterator[Array]:
        """Yield the vectors of each tokenized sentence, in order, `batch_size` sentences at a time.

        The weights must not change before the last one: words' vectors are cached meanwhile.
        """
        return self._vectors(checked_sentences(sentences), batch_size)

    def _vectors(self, sentences: Iterable[Sequence[str]], batch_size: int | None) -> Iterator[Array]:
        stateful = self.elmo_bilm.stateful
        for batch in run_batches(self.elmo_bilm, sentences, stateful=stateful, batch_size=batch_size, window=0):
            yield from batch.vectors()

    def encode(
        self,
        sentences: str | Sequence[str] | Iterable[Sequence[str]],
        pool: Pool = "mean",
        output: str = "numpy",
        *,
        layers: Layers = "average",
        batch_size: int | None = None,
        tokenizer: Tokenizer | Tokenize | None = None,
        show_progress_bar: bool = False,
        normalize_embeddings: bool = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: torch.device | str | None = None,
    ) -> Any:
        """Return one vector per sentence, [N, W], or [W] for a single string; the same sentence has the same vector.

        Args:
            sentences: raw strings, which the tokenizer splits, or lists of words, in a list, a Series, an array of one
                dimension or a generator.
            pool: how the vectors of a sentence's tokens become one: their "mean", their "max" in each dimension, or
                "first_last", where each direction has read the whole sentence.
            output: "numpy", "torch" (on the CPU) or "pandas", a table with a row per sentence and the columns elmo_0,
                elmo_1, ... Its index is the index of the Series `sentences`; of other sentences, their texts. A
                repeated index gives a warning, because `join` then pairs each vector with several rows.
            layers: "average", "top", "all" side by side, a number from 0, or several.
            batch_size: maximum number of sentences in a batch.
            tokenizer: "whitespace", "basic", "spacy", "logs", or a function from a text to its tokens; None: the
                model's, or "basic" if it stores none.
            show_progress_bar: whether to show how many sentences are done, on the standard error.
            normalize_embeddings: whether to divide each vector by its length, so that products are cosines.
            convert_to_numpy, convert_to_tensor: sentence-transformers' names for output="numpy" and "torch"; as there,
                the second one wins, and with neither a list of tensors is returned.
            device: moves the model there first; None: it stays.

        A sentence without words gives zeros. Carried state is neither used nor changed. Raises: ElmoFastError.
        """
        check_choice("pool", pool, POOLS)
        check_choice("output", output, ("numpy", "torch", "pandas"))
        if convert_to_tensor:
            if output == "pandas":
                raise ElmoFastError('convert_to_tensor is output="torch"; got output="pandas" too: give one of them')
            output = "torch"
        if device is not None:
            self.to(device)
        table = require("pandas", "pandas", 'output="pandas"') if output == "pandas" else None
        split = tokenizer_of(tokenizer or self.elmo_bilm.options.tokenizer or RAW_TEXT)
        single = isinstance(sentences, str)
        texts: Any = [sentences] if single else sentences
        if table is not None and not isinstance(texts, table.Series):  # read twice: for the index too
            check_sentences(texts, expected=TEXT_OR_WORDS)
            texts = list(texts)
        elif table is not None and not texts.index.is_unique:
            label = texts.index[texts.index.duplicated()][0]
            warnings.warn(
                f"the index of sentences has the label {label} more than once: joining the result would pair each "
                "vector with several rows; first call table = table.reset_index(drop=True)",
                stacklevel=2,
            )
        words = checked_sentences(texts, split=split)
        vectors = TokenVectors(self.elmo_bilm, layers, batch_size=batch_size).pooled(
            words, pool, total=len(texts) if isinstance(texts, Sized) else None, show_progress_bar=show_progress_bar
        )
        if normalize_embeddings:
            vectors = unit_rows(vectors)
        if table is not None:
            index = (
                texts.index
                if isinstance(texts, table.Series)
                else table.Index([each if isinstance(each, str) else " ".join(each) for each in texts], name="sentence")
            )
            return table.DataFrame(vectors, index, column_names(vectors.shape[1]))
        rows = vectors[0] if single else vectors
        if output == "numpy" and convert_to_numpy:
            return rows
        tensor = torch.from_numpy(rows)
        return tensor if output == "torch" or single else [*tensor]

    def index(
        self,
        sentences: Iterable[str | Sequence[str]] | Source,
        pool: Pool = "mean",
        *,
        layers: Layers = "average",
        tokenizer: Tokenizer | None = None,
        remove_components: int | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> SentenceIndex:
        """Embed sentences as `encode` does, to search them: index.search(queries), index.save(folder).

        Args:
            sentences: raw strings, which the tokenizer splits, or lists of words; or any `elmo_fast.text.Source`, which
                is read twice. Their vectors stay in memory: 4 bytes x sentences x width, for each layer.
            layers: "average", "top", a number from 0; "all" or several, of which each search names one.
            tokenizer: its name, stored for queries too; None: the model's, or "basic" if it stores none.
            remove_components: 0 subtracts the mean of all vectors, which they share and which raises every cosine; more
                also removes so many first principal components, of queries too. None: neither.
            pool, batch_size: as in encode.
            progress: called after each batch with the tokens done and the total.

        Raises: ElmoFastError. Source: J. Mu and P. Viswanath, "All-but-the-Top", ICLR 2018.
        """
        tokenizer = tokenizer or self.elmo_bilm.options.tokenizer or RAW_TEXT
        if not isinstance(sentences, Source):
            check_sentences(sentences, expected=TEXT_OR_WORDS)
            sentences = Lines("sentences", list(sentences), tokenizer)
        return SentenceIndex.build(
            self.elmo_bilm, sentences, pool=pool, layers=layers, tokenizer=tokenizer,
            remove_components=remove_components, batch_size=batch_size, progress=progress,
        )  # fmt: skip

    @staticmethod
    def similarity(a: Any, b: Any) -> Any:
        """Return the cosine of each vector of `a` with each of `b`, [N, M]; 0 with a vector of zeros.

        a, b: vectors [N, W] and [M, W], or [W] for one, as arrays, tensors or tables. The result is a tensor with the
            dtype and device of `a` if one of them is a tensor, else an array. Raises: ElmoFastError for other shapes,
            and for what holds no numbers.

        Source: sentence-transformers' `SentenceTransformer.similarity`.
        """
        tensors = [_tensor_of(a, "a"), _tensor_of(b, "b")]
        first, second = (torch.atleast_2d(each if each.is_floating_point() else each.float()) for each in tensors)
        if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
            raise ElmoFastError(
                f"a and b must be vectors [N, W] and [M, W], or [W]; got the shapes {list(tensors[0].shape)} and "
                f"{list(tensors[1].shape)}"
            )
        cosines = normalize(first, dim=1) @ normalize(second.to(first), dim=1).T
        return cosines if isinstance(a, Tensor) or isinstance(b, Tensor) else cosines.numpy()

    def embed_file(
        self,
        input_file: TextIO | str | os.PathLike[str] | Source,
        output_file_path: str | os.PathLike[str],
        output_format: str = "all",
        batch_size: int | None = None,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
        *,
        file_format: str | None = None,
        dtype: str = "float32",
        max_tokens: int | None = None,
        pool: Pool | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Write the vectors of a text's sentences; the file appears when it is complete. Returns their number.

        Args:
            input_file: a path (.gz and .zst are decompressed), read twice; an open text stream, whose lines stay in
                memory and which is closed; or any `elmo_fast.text.Source`. One sentence per line, split by the model's
                tokenizer (if it stores none, at white space: a file holds tokens, other than the strings of `encode`);
                a blank line is skipped, and its vectors are an empty array.
            output_file_path: the file to write; "-" prints JSON lines on the standard output, as they are computed.
            output_format: "all" layers, [L+1, T, 2D] per sentence; the "top" one, or their "average", [T, 2D].
            batch_size: maximum number of sentences in a batch; None: 64 or, on a GPU without carried state, 1,024.
            forget_sentences: omit the sentences: "sentence_to_index", or `names`.
            use_sentence_keys: name the datasets by the sentences, and omit "sentence_to_index".
            file_format: None: by the ending of the output's name (.hdf5 or .h5, .npz, .safetensors, .parquet, .jsonl),
                else "hdf5". "hdf5": dataset "0", "1", ... per line, as in AllenNLP, and "sentence_to_index", a JSON
                object from each sentence to its dataset. "hdf5-flat", "safetensors", "npz": `embeddings` [tokens, L+1
                or 1, 2D] of all sentences and `offsets` [N+1] int64, where each begins, with the model and the
                settings as metadata; "safetensors" stores the sentences as `names`, for ElmoVectors. "parquet": a row
                for each sentence, with `sentence` and `embeddings`, a list of its tokens' vectors, and the other
                columns of a table; needs pyarrow. "jsonl": sentence and vectors as a JSON object per line.
            dtype: "float32" or "float16", of the output.
            max_tokens: maximum number of tokens in a batch, including padding; None: 16,384 or, with carried state, any
                number. A longer sentence runs alone and, without carried state, in chunks.
            pool: one vector per sentence, "mean", "max" or "first_last" of its tokens (`embed.layers.pool`);
                a blank line gives zeros. The file is `embeddings` [N, L+1, 2D] or [N, 2D]; in "parquet" and "jsonl",
                `embedding`.
            progress: called after each batch with the tokens done and the total.

        Without carried state, sentences of similar length run together.

        Raises: ElmoFastError: an unknown format, or another than the output's name says; one file for both, a text
            without sentences, a sentence that cannot name a dataset, a full disk, vectors that are not finite; OSError.
        """
        name = getattr(input_file, "name", input_file)
        if isinstance(name, str | os.PathLike) and replaces(output_file_path, name):
            raise ElmoFastError(f"output_file_path must differ from input_file; got {name!r} for both")
        file_format = format_of(output_file_path, file_format)
        check_formats(output_format, file_format, dtype, use_sentence_keys)
        if pool is not None:
            check_choice("pool", pool, POOLS)
        named = use_sentence_keys or (file_format in NAMED and not forget_sentences)
        tokenizer = self.elmo_bilm.options.tokenizer
        text = scan(input_file, keep_lines=named, as_keys=use_sentence_keys, tokenizer=tokenizer)
        lengths = text.lengths if pool is None else np.ones_like(text.lengths)
        layout = file_layout(self, lengths, output_format, dtype)._replace(
            names=text.lines if named else None,
            keyed=use_sentence_keys,
            pooled=pool is not None,
            others=text.source.other_columns() if file_format == "parquet" else None,
        )
        layout.metadata.update({} if pool is None else {"pool": pool})
        check_room(output_file_path, layout.nbytes, "; one layer (average or top) and float16 take less")
        # Pooled vectors of the format hdf5 are the rows of one dataset.
        written_as = "hdf5-flat" if file_format == "hdf5" and pool is not None else file_format
        with FORMATS[written_as](output_file_path, layout) as write:
            self.write_text(
                text, write, layout.dtype, output_format, pool=pool, batch_size=batch_size, max_tokens=max_tokens,
                progress=progress,
            )  # fmt: skip
        if hasattr(input_file, "close"):
            input_file.close()
        return len(text)

    def write_text(
        self,
        text: ScannedText,
        write: Write,
        dtype: Any,
        output_format: str = "all",
        *,
        pool: Pool | None = None,
        **settings: Any,
    ) -> None:
        """Give the vectors of each sentence of a text to `write`, by the sentence's index, as they are computed.

        write: of one of `elmo_fast.embed.token_files.FORMATS`; settings: batch_size, max_tokens and progress; other
        arguments and Raises: as in embed_file.
        """
        bilm = self.elmo_bilm
        # A blank line has no row in a batch that passes its state on, so that it changes no other sentence. Without
        # state it stays: lines are sorted by length in windows of lines, which the parts of a text begin with.
        apart = (text.lengths == 0) & bilm.stateful
        numbers = np.argsort(apart, kind="stable")  # of the lines in batches, then of those apart

        def write_sentence(index: int, vectors: Array) -> None:
            number = int(numbers[index])
            with np.errstate(over="ignore"):
                rounded = (vectors if pool is None else pooled(vectors, pool)[..., None, :]).astype(dtype, copy=False)
            if not np.isfinite(rounded).all():
                hint = "; give dtype float32, which holds larger numbers" if dtype == np.float16 else ""
                place = f"{text.source.place(number)} of {text.source.name}"
                raise ElmoFastError(f"{place} gave vectors that are not finite{hint}")
            write(number, rounded)

        sentences = (tokens for tokens in text.sentences() if tokens or not bilm.stateful)
        layers = [bilm.num_layers] if output_format == "all" else []
        for index in range(len(text) - np.count_nonzero(apart), len(text)):
            write_sentence(index, np.empty((*layers, 0, bilm.get_output_dim()), np.float32))
        write_vectors(
            bilm, sentences, write_sentence, output_format, side_by_side=output_format != "all",
            total=int(text.lengths.sum()), stateful=bilm.stateful, **settings,
        )  # fmt: skip


def _check_device(cuda_device: int, settings: dict[str, Any]) -> None:
    device, backend = gpu_numbered(cuda_device), settings.get("backend", "auto")
    check_int8_device(settings.get("precision", "float32"), device, backend, "give cuda_device=-1")


def _tensor_of(vectors: Any, name: str) -> Tensor:
    """Return vectors as a tensor. name: the argument. Raises: ElmoFastError unless they are numbers."""
    if isinstance(vectors, Tensor):
        return vectors
    try:
        array = np.require(vectors, requirements="W")
    except ValueError:  # rows of several lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise ElmoFastError(
            f"{name} must be vectors [N, W] or [W] of numbers, as `encode` returns (of a table, the columns of vectors "
            f"alone: table.filter(like='elmo_')); got {quoted(vectors)}"
        )
    return torch.as_tensor(array, device="cpu")


def check_formats(output_format: str, file_format: str, dtype: str, use_sentence_keys: bool) -> None:
    """Raise ElmoFastError for arguments of embed_file that are unknown or do not go together."""
    check_choice("output_format", output_format, ("all", "top", "average"))
    check_choice("file_format", file_format, FORMATS)
    check_choice("dtype", dtype, ("float32", "float16"))
    if use_sentence_keys and file_format != "hdf5":
        raise ElmoFastError(f'use_sentence_keys needs file_format="hdf5"; got {file_format!r}')


def file_layout(
    embedder: ElmoEmbedder, lengths: np.ndarray[Any, np.dtype[np.int64]], output_format: str, dtype: str
) -> FileLayout:
    """Return the layout of a file of the vectors of sentences of these lengths, which does not store the sentences."""
    bilm = embedder.elmo_bilm
    metadata = {
        "model": embedder.model_name,
        "layers": output_format,
        "precision": bilm.arithmetic,
        "stateful": str(bilm.stateful).lower(),
        "tokenizer": bilm.options.tokenizer or "whitespace",
        "writer": f"elmo_fast {__version__}",
    }
    layers = bilm.num_layers if output_format == "all" else 0
    return FileLayout(lengths, layers, bilm.get_output_dim(), np.dtype(dtype), metadata)
