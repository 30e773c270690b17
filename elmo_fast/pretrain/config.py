"""The configuration of a pretraining run: one dataclass per concern; its validation.

Names are bilm-tf's if it has the option. Field names are unique across the four classes, so the command line and the
YAML files are flat: `--dim 1024`, `dim: 1024`. The docstring below a field is its help; a field without one has the
help that several commands share (`cli/_parser.py`).
"""

import dataclasses
import glob
import pathlib
from dataclasses import dataclass
from typing import Any, Literal

from elmo_fast._io.fields import MIN_COUNT, field_complaints, within
from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.op_choices import DEFAULT_LOSS, LOSS_KINDS, Activation, Backend, FormatIn, Loss, Precision, Tokenizer
from elmo_fast.text.sources import Reading

PRESET_FOLDER = pathlib.Path(__file__).parent / "presets"
DEFAULT_RATES = {"adagrad": 0.2, "adamw": 0.001}
ORIGINAL_FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]


@dataclass
class ModelConfig:
    """The network; the defaults are the original architecture."""

    input: Literal["characters", "words", "vectors"] = "characters"
    """what the model reads of a word: its characters; words: its number in the vocabulary, or that of <UNK>;
    vectors: as words, starting from the vectors in vectors_file"""
    train_vectors: bool = True
    """with `input: vectors`: train the vectors"""
    filters: list[list[int]] = dataclasses.field(default_factory=lambda: [list(each) for each in ORIGINAL_FILTERS])
    """[width, number] of each group of character convolutions"""
    char_embedding_dim: int = 16
    """width of a character embedding"""
    max_characters_per_token: int = within(50, "of at least 3")
    """slots per word: its bytes and two marks; longer words are cut"""
    activation: Activation = "relu"
    """activation after the maximum over a filter's windows"""
    n_highway: int = within(2, "0 or more")
    """highway layers between the convolutions and the projection"""
    dim: int = 4096
    """cells per LSTM layer and direction"""
    projection_dim: int = 512
    """output width of an LSTM layer per direction, and of the character encoder"""
    n_layers: int = 2
    """LSTM layers"""
    cell_clip: float | None = 3.0
    """bound of the cell state; null disables it"""
    proj_clip: float | None = 3.0
    """bound of the projected output; null disables it"""
    use_skip_connections: bool = True
    """add the input of a layer to its output, from the second layer on"""
    dropout: float = within(0.1, "from 0 to below 1")
    """dropout probability of the inputs of the LSTM layers and of the softmax"""


@dataclass
class DataConfig:
    """The text: one sentence per line, or per row of a table."""

    train_prefix: str = ""
    """text to train on: a folder that `elmo-fast prepare` wrote, or a glob of text files ('corpus/train-*')"""
    heldout_prefix: str | None = None
    """text to evaluate on during the run: as train_prefix"""
    heldout_share: float = within(0.0, "from 0 to below 1")
    """in place of heldout_prefix: fraction of the lines of train_prefix, such as 0.01, chosen by a digest of each line
    (so in any order of files the same ones), that do not train and are evaluated on"""
    format_in: FormatIn | None = None
    column: str = "text"
    split: str = "train"
    vocab_file: str | None = None
    """one word per line, including <S>, </S> and <UNK>; null: init_from's, or built from the training text"""
    vectors_file: str | None = None
    """for `input: vectors`: word vectors of width projection_dim (word2vec, GloVe or safetensors, plain or .gz)"""
    min_count: int = MIN_COUNT
    """if the vocabulary is built from the text: leave out words that occur less often"""
    max_vocab_size: int | None = None
    """if the vocabulary is built from the text: its maximum size, including the three markers; null: no limit"""
    tokenizer: Tokenizer | None = None
    """tokenizer of the text, stored with the model: whitespace, basic, spacy or logs; with +nfc, as in basic+nfc, of
    text whose combining marks are composed; null: that of a prepared corpus or of init_from, else whitespace"""
    shuffle: bool = True
    """read the sentences in a new random order in each epoch"""

    @property
    def reading(self) -> Reading:
        """How tables are read."""
        return {"format_in": self.format_in, "column": self.column, "split": self.split}


@dataclass
class OptimizerConfig:
    """The loss, the optimizer and its schedule."""

    batch_size: int = 128
    """rows of text, of all processes (GPUs) together, which share them evenly; cannot change when a run resumes"""
    micro_batches: int = 1
    """each process computes its rows in this many parts, to save memory"""
    unroll_steps: int = 20
    """tokens per row and step; gradients stop at the end of a step, the LSTM state continues"""
    state_reset: float = within(0.0, "from 0 to 1")
    """probability, per row and step, that a row starts from a zero LSTM state, as evaluation and embedding do; 0 in
    the original; 0.02 helps short runs"""
    loss: Loss = DEFAULT_LOSS
    """training loss: sampled_softmax, negative_sampling (noise from counts^0.75), hierarchical_softmax (Huffman
    tree of the counts) or full_softmax"""
    n_negative_samples_batch: int = 8192
    """with sampled_softmax and negative_sampling: words sampled per direction and step, shared by all rows"""
    negatives: float | None = None
    """with negative_sampling: K, as how many words the sampled ones count; null: as many as sampled"""
    optimiser: Literal["adagrad", "adamw"] = "adagrad"
    """adagrad, as in the original, or adamw, which updates the whole softmax table in each step"""
    learning_rate: float | None = None
    """null: 0.2 with adagrad, 0.001 with adamw"""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """learning rate after the warm-up"""
    warmup_steps: int = within(0, "0 or more")
    """steps in which the learning rate rises linearly from 0"""
    final_share: float = within(0.0, "from 0 to 1")
    """with a linear or cosine schedule: the final learning rate, as a fraction of learning_rate"""
    initial_accumulator_value: float = 1.0
    """initial value of AdaGrad's sums of squares"""
    weight_decay: float = within(0.0, "0 or more")
    """AdamW's weight decay"""
    all_clip_norm_val: float = 10.0
    """maximum norm of all gradients together"""
    n_epochs: int = 10
    """passes over the training text"""
    n_train_tokens: int | None = None
    """words per pass, from which bilm-tf computes the number of steps; null: the words of the text"""

    @property
    def rate(self) -> float:
        """The learning rate in force."""
        return DEFAULT_RATES[self.optimiser] if self.learning_rate is None else self.learning_rate


@dataclass
class RunConfig:
    """Where results go, how long the run may take, and on what it computes."""

    save_dir: str = ""
    """folder for checkpoints, vocabulary, options and metrics.jsonl"""
    resume: str = "auto"
    """auto: from the newest checkpoint in save_dir, if there is one; never; or the folder of a checkpoint"""
    allow_other_corpus: bool = False
    """resume with another text, from its start"""
    init_from: str | None = None
    """model that a new run takes its weights from: a folder, an archive, or a name that `elmo-fast models` lists;
    words in both vocabularies keep theirs"""
    train_bilm: bool = True
    """false, with init_from: train the softmax alone, for a model that was published without one; the vectors stay"""
    prefix: str | None = None
    max_steps: int | None = None
    """maximum number of steps; null: those of n_epochs"""
    max_seconds: float | None = None
    """save and stop after this many seconds; null: no limit"""
    checkpoint_interval: int = 1250
    """steps between checkpoints; one is also written after ten minutes without one, and at the end"""
    keep_checkpoints: int = 2
    """number of checkpoints to keep; older ones are removed"""
    heldout_interval: int | None = None
    """steps between evaluations of heldout_prefix, which is also evaluated at the end; null: a tenth of the planned
    steps, at least log_interval, or of max_seconds, whichever comes first"""
    keep_best: bool = False
    """also keep the checkpoint with the best perplexity of heldout_prefix, as checkpoints/best"""
    patience: int | None = None
    """stop after this many evaluations of heldout_prefix without a better perplexity than before; null: never
    stop"""
    log_interval: int = 100
    """steps between rows of metrics.jsonl; a line for people comes every ten seconds"""
    tensorboard: bool = False
    """also write the figures for TensorBoard, to save_dir/tensorboard"""
    seed: int = within(0, "0 or more")
    """seed of initial weights, sentence order, dropout and negative samples"""
    precision: Literal[Precision, "tf32"] = "float32"
    """rounds the operands of matrix products, for speed (see elmo-fast info); float32 rounds nothing; tf32: the
    large products, on NVIDIA GPUs"""
    backend: Backend = "auto"
    cuda_graph: bool = True
    """on a GPU: replay forward and backward passes from CUDA graphs; false: launch each kernel"""
    threads: int | None = None


SECTIONS: dict[str, type] = {
    "model": ModelConfig,
    "data": DataConfig,
    "optimizer": OptimizerConfig,
    "run": RunConfig,
}


@dataclass
class PretrainConfig:
    """The whole configuration of a pretraining run."""

    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    run: RunConfig = dataclasses.field(default_factory=RunConfig)

    @classmethod
    def from_flat(cls, values: dict[str, Any]) -> "PretrainConfig":
        """Build the four sections from one dictionary of field names.

        Raises ElmoFastError that names every unknown key.
        """
        known = {field.name for section in SECTIONS.values() for field in dataclasses.fields(section)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ElmoFastError(f"unknown configuration keys: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        return cls(
            **{
                name: section(**{f.name: values[f.name] for f in dataclasses.fields(section) if f.name in values})
                for name, section in SECTIONS.items()
            }
        )

    def flat(self) -> dict[str, Any]:
        """All fields of the four sections in one dictionary."""
        return {key: value for name in SECTIONS for key, value in dataclasses.asdict(getattr(self, name)).items()}


def presets() -> list[str]:
    """Return the names of the configurations that come with the package, smallest first."""
    return ["tiny", "mini", "small", "medium", "original", "original_h200"]


def preset_file(name: str) -> pathlib.Path:
    """Return the YAML file of a preset.

    Raises ElmoFastError that lists the presets when there is none of that name.
    """
    check_choice("preset", name, presets())
    return PRESET_FOLDER / f"{name}.yaml"


def load_preset(name: str) -> PretrainConfig:
    """Return the configuration of a preset: the fields its YAML file names, the defaults for the rest."""
    import yaml

    return PretrainConfig.from_flat(yaml.safe_load(preset_file(name).read_text(encoding="utf-8")))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def complaints(config: PretrainConfig) -> list[str]:
    """Everything that is wrong with `config`, one sentence each; an empty list when it can be run."""
    sentences = [one for name in SECTIONS for one in field_complaints(getattr(config, name))]
    model, data, optimizer, run = config.model, config.data, config.optimizer, config.run
    slots, filters = model.max_characters_per_token, model.filters or []  # None of a line `filters:` without a value
    wrong = [pair for pair in filters if len(pair) != 2 or not all(map(_is_count, pair)) or pair[0] > slots]
    if wrong or not filters:
        wanted = f"one or more [width of 1 to max_characters_per_token={slots}, number above 0]"
        sentences.append(f"filters must be {wanted}; got {wrong or 'none'}")
    if _is_count(model.dim) and _is_count(model.projection_dim) and model.projection_dim > model.dim:
        sentences.append(f"projection_dim must not exceed dim={model.dim}; got {model.projection_dim}")
    if not data.train_prefix:
        sentences.append("train_prefix must name the training files, as in 'corpus/train-*'; got nothing")
    for name in ("train_prefix", "heldout_prefix"):
        pattern = getattr(data, name)
        if pattern and data.format_in != "dataset" and not glob.glob(pattern):
            sentences.append(f"{name} must match at least one file; {pattern!r} matches none")
    if data.vectors_file is not None and not pathlib.Path(data.vectors_file).is_file():
        sentences.append(f"vectors_file must exist; got {data.vectors_file!r}")
    if (model.input == "vectors") != (data.vectors_file is not None):
        given = f"vectors_file {data.vectors_file!r} with input: {model.input}"
        sentences.append(f"vectors_file must name the vectors of input: vectors, and goes with it alone; got {given}")
    if model.input == "vectors" and run.init_from is not None:
        sentences.append("input: vectors creates a new table, and init_from brings one; give input: words instead")
    if model.input != "vectors" and not model.train_vectors:
        sentences.append(f"train_vectors: false goes with input: vectors; got input: {model.input}")
    if not run.train_bilm and run.init_from is None:
        sentences.append("train_bilm: false keeps the biLM of init_from, which must name a model; got nothing")
    if run.prefix is not None and run.init_from is None:
        sentences.append(f"prefix chooses one of the ELMos of init_from; got {run.prefix!r} without init_from")
    takers = [kind.name for kind in LOSS_KINDS.values() if kind.takes_negatives]
    if optimizer.negatives is not None and optimizer.loss not in takers:
        sentences.append(f"negatives goes with loss: {' or '.join(takers)}; got loss: {optimizer.loss}")
    if optimizer.weight_decay and optimizer.optimiser == "adagrad":
        sentences.append(f"weight_decay is of adamw; with adagrad it must be 0; got {optimizer.weight_decay!r}")
    if data.heldout_prefix is not None and data.heldout_share:
        sentences.append("heldout_prefix and heldout_share both name the text to evaluate on; give one of them")
    for name, is_set in (("keep_best", run.keep_best), ("patience", run.patience is not None)):
        if is_set and data.heldout_prefix is None and not data.heldout_share:
            sentences.append(f"{name} compares perplexities of heldout_prefix, which must name text; got nothing")
    if not run.save_dir:
        sentences.append("save_dir must name the folder to write to; got nothing")
    return sentences


def validate(config: PretrainConfig) -> None:
    """Raise one ElmoFastError that lists every complaint about `config`."""
    sentences = complaints(config)
    if sentences:
        raise ElmoFastError("the configuration cannot be run:\n" + "\n".join(f"  - {one}" for one in sentences))
