"""The page that a model has in its folder and on the hub: what it is, how it was trained, how it is used."""

import hashlib
import pathlib
import re
from collections.abc import Mapping
from shlex import quote
from typing import Any

from torch import Tensor

import elmo_fast
from elmo_fast._io.atomic_file import write_text
from elmo_fast.checkpoints import ElmoOptions, State
from elmo_fast.pretrain.metrics import Metrics

_USE = """\
## Use

```python
from elmo_fast import ElmoEmbedder

embedder = ElmoEmbedder.from_pretrained("{name}")
layers = embedder.embed_sentence(["Pretrained", "biLMs", "are", "useful", "."])  # [{layers}, 5, {width}] float32
```

`Elmo.from_pretrained("{name}")` is the torch module with learned mixes of the layers; {files},
for `elmo-fast embed`{eval} and `elmo-fast convert`. The package is elmo_fast {package}.
"""
CARD = "README.md"
# The last line of a card, before the digest of what stands above it.
_MARK = "<!-- Written by elmo_fast, which replaces this file only while it is unchanged: "


def is_unchanged(page: str) -> bool:
    """Return whether a page is a card as `write_card` wrote it."""
    card, mark, digest = page.rpartition(_MARK)
    return bool(mark) and digest == f"{hashlib.sha256(card.encode()).hexdigest()} -->\n"


def rows_of(card: str, title: str) -> dict[str, str]:
    """Return the rows of a card's table."""
    table = card.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (\w.*?) \| (.*) \|$", table, re.MULTILINE))


def write_card(folder: pathlib.Path, card: str) -> bool:
    """Write a card as README.md into a folder; False if there is another one that is no unchanged card."""
    path = folder / CARD
    if path.exists() and not is_unchanged(path.read_text(encoding="utf-8", errors="replace")):
        return False
    write_text(path, f"{card}{_MARK}{hashlib.sha256(card.encode()).hexdigest()} -->\n")
    return True


def model_card(
    name: str,
    state: State,
    options: ElmoOptions,
    metrics: Metrics | None = None,
    licence: str | None = None,
    text: Mapping[str, str] | None = None,
    training: Mapping[str, str] | None = None,
) -> str:
    """README.md of a model in a folder or on the hub, with the YAML head that the hub reads.

    name: of the folder, or "user/name"; metrics: of the run that made the model, up to the step of the model, where
    there is one; licence: its name as the hub has it, such as apache-2.0; text, training: rows on them that the others
    do not have.
    """
    import yaml

    head: dict[str, Any] = {"library_name": "elmo_fast"} | ({"license": licence} if licence else {})
    head |= {"pipeline_tag": "feature-extraction", "tags": ["elmo", "bilm"]}
    tables = _table("Text", text or {}) + _table("Training", _training(options, metrics) | dict(training or {}))
    on_hub = "/" in name
    use = _USE.format(
        name=name,
        layers=options.lstm.n_outputs + 1,
        width=2 * options.lstm.projection_dim,
        eval=", `elmo-fast eval`" if "softmax.bias" in state else "",
        files=f"`elmo-fast download {name}` fetches the files"
        if on_hub
        else f"`--model {quote(name)}` names the folder",
        package=elmo_fast.__version__ + (", with its extra `hub`" if on_hub else ""),
    )
    return (
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n\n# {name.rpartition('/')[2]}\n\n"
        "A bidirectional language model (ELMo, Peters et al. 2018), whose layers are vectors of words in their context."
        f"\n\n{_table('Architecture', described_model(state, options))}{tables}{use}"
    )


def _table(title: str, rows: Mapping[str, str]) -> str:
    # A bar in the name of a file would end its cell; `rows_of` gives rows where it stands escaped.
    escaped = {key: re.sub(r"(?<!\\)\|", r"\\|", value) for key, value in rows.items()}
    lines = [f"| {key} | {value} |" for key, value in escaped.items()]
    return "\n".join([f"## {title}", "", "| | |", "|:--|:--|", *lines, "", ""]) if rows else ""


def described_model(state: State, options: ElmoOptions) -> dict[str, str]:
    """Return what the model is, as names and values."""
    rows, lstm, cnn = {}, options.lstm, options.char_cnn
    if cnn is not None:
        filters = ", ".join(f"{number} of width {width}" for width, number in cnn.filters)
        rows["characters"] = f"vectors of {cnn.embedding_dim}, at most {cnn.max_characters_per_token} slots per word"
        rows["convolutions"] = f"{filters}; maximum, {cnn.activation}"
        rows["highway layers"] = str(cnn.n_highway)
    elif options.reads_word_ids:
        rows["input"] = f"word ids, a vector for each of {options.n_tokens_vocab or 0:,} words"
    if options.lexicon is not None:
        entries = (f"{len(options.lexicon.characters):,} characters", f"{len(options.lexicon.words):,} words")
        rows["lexicons"] = f"{' and '.join(entries)}, vectors of words of {options.lexicon.word_dim}"
    rows["LSTM layers"] = f"{lstm.n_layers} per direction, {lstm.dim:,} cells projected to {lstm.projection_dim:,}"
    if lstm.joined:
        rows["LSTM layers"] += " after the last; each reads both directions of the one below"
    rows["clips"] = "cell {}, projection {}".format(*(clip or "none" for clip in lstm.clips))
    rows["skip connections"] = "yes" if lstm.use_skip_connections else "no"
    rows["vectors"] = f"{lstm.n_outputs + 1} layers of {2 * lstm.projection_dim:,} numbers per word"
    rows["weights"] = f"{_count(state, ('_token_embedder.', '_elmo_lstm.', '_word_embedding.')):,}"
    if "softmax.bias" in state:
        softmax = f"{_count(state, ('softmax.weight', 'softmax.bias')):,}"
        words = options.n_tokens_vocab or len(state["softmax.bias"])
        rows["softmax"] = f"{words:,} words, {softmax} weights more"
        rows["loss"] = options.trained_by.replace("_", " ")
    return rows


def _count(state: dict[str, Tensor], prefixes: tuple[str, ...]) -> int:
    return sum(tensor.numel() for name, tensor in state.items() if name.startswith(prefixes))


def _training(options: ElmoOptions, metrics: Metrics | None) -> dict[str, str]:
    rows = {}
    if options.batch_size and options.unroll_steps:
        rows["batch"] = f"{options.batch_size:,} rows of {options.unroll_steps} words"
    if options.learning_rate:
        rows["optimizer"] = f"learning rate {options.learning_rate:g}"
    if metrics is not None and metrics.steps:
        last = metrics.steps[-1]
        rows["steps"] = f"{last['step']:,}"
        rows["training loss"] = f"{last['loss']:.3f}"
        rows["words seen"] = f"{last['words']:,}, each in both directions"
        for key, kind in (("sampled_perplexity", "sampled softmax"), ("training_perplexity", "whole vocabulary")):
            if key in last:
                rows["training perplexity"] = f"{last[key]:,.1f} ({kind})"
        if metrics.heldout:
            heldout = metrics.heldout[-1]
            directions = ", ".join(
                f"{direction} {heldout[f'perplexity_{direction}']:,.1f}" for direction in ("forward", "backward")
            )
            rows["held-out perplexity"] = (
                f"{heldout['perplexity']:,.1f} ({directions}) after {heldout['words']:,} words"
            )
    return rows
