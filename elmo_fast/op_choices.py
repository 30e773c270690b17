"""Names of backends, precisions, activations, losses, tokenizers, formats and poolings, each listed once; no torch."""

from typing import Literal, NamedTuple, get_args

Backend = Literal["auto", "native", "triton", "reference"]
BACKEND_CHOICES: tuple[str, ...] = get_args(Backend)

Precision = Literal["float32", "bfloat16", "float16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)

# Of modules and ops that only infer: "int8" has no gradients.
InferencePrecision = Literal[Precision, "int8"]
INFERENCE_PRECISIONS: tuple[str, ...] = get_args(InferencePrecision)


def trained_precision(precision: InferencePrecision) -> Precision:
    """Return the precision of what is trained or measured with a biLM of `precision`: float32 with int8."""
    return "float32" if precision == "int8" else precision


Activation = Literal["relu", "tanh"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)


# Of a language model's training; each name is also in LOSS_KINDS.
Loss = Literal["sampled_softmax", "negative_sampling", "hierarchical_softmax", "full_softmax"]
LOSSES: tuple[str, ...] = get_args(Loss)


class LossKind(NamedTuple):
    """A loss over V words, as configurations and files know it; `modules.losses.LOSS_CLASSES` has its module.

    samples: whether training samples words; wants_counts: whether it needs the words' counts, which files then hold;
    table_is_tree: whether its table has a row for each inner node of a tree of the words, V - 1, in place of one for
    each word; takes_negatives: whether the configuration's `negatives` has an effect.
    """

    name: Loss
    samples: bool = False
    wants_counts: bool = False
    table_is_tree: bool = False
    takes_negatives: bool = False

    def rows(self, words: int) -> int:
        """Return the rows of the table for V words."""
        return words - self.table_is_tree

    def words(self, rows: int) -> int:
        """Return V of a table of so many rows."""
        return rows + self.table_is_tree


LOSS_KINDS: dict[str, LossKind] = {
    kind.name: kind
    for kind in (
        LossKind("sampled_softmax", samples=True),
        LossKind("negative_sampling", samples=True, wants_counts=True, takes_negatives=True),
        LossKind("hierarchical_softmax", wants_counts=True, table_is_tree=True),
        LossKind("full_softmax"),
    )
}
# By bilm-tf's sample_softmax. The default need not be named in files.
BILM_TF_LOSSES: dict[bool, Loss] = {True: "sampled_softmax", False: "full_softmax"}
DEFAULT_LOSS = BILM_TF_LOSSES[True]

# Of text, stored with a model (text/tokenizers.py); +nfc: of text that is normalised first.
Tokenizer = Literal["whitespace", "basic", "spacy", "logs", "whitespace+nfc", "basic+nfc", "spacy+nfc", "logs+nfc"]
TOKENIZERS: tuple[str, ...] = get_args(Tokenizer)

# Of sentences to read (text/sources.py).
FormatIn = Literal["text", "fasta", "parquet", "dataset", "csv", "tsv", "jsonl"]
FORMATS_IN: tuple[str, ...] = get_args(FormatIn)

# Of the vectors of a sentence's tokens (embed/layers.py).
Pool = Literal["mean", "max", "first_last"]
POOLS: tuple[str, ...] = get_args(Pool)
