"""The configuration of a pretraining run: one dataclass per concern, one sentence per field.

Names are bilm-tf's if it has the option. Field names are unique across the four classes, so the command line and the
YAML files are flat: `--dim 1024`, `dim: 1024`.
"""

# ruff: noqa: RUF009  (_field returns a dataclasses.field)

import dataclasses
import pathlib
from dataclasses import dataclass
from typing import Any, Literal

from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.fields import described
from elmo_fast.op_choices import Activation, Backend, Precision

PRESET_FOLDER = pathlib.Path(__file__).parent / "presets"
DEFAULT_RATES = {"adagrad": 0.2, "adamw": 0.001}
ORIGINAL_FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]


@dataclass
class ModelConfig:
    """The network; the defaults are the original architecture."""

    input: Literal["characters", "words", "vectors"] = described(
        "characters",
        "What the model reads of a word: characters; words (its number in the vocabulary, others are <UNK>); or "
        "vectors (as words, but the table starts with the vectors of vectors_file).",
    )
    train_vectors: bool = described(True, "Whether the vectors of `input: vectors` are trained, or stay as they are.")
    filters: list[list[int]] = described(ORIGINAL_FILTERS, "[width, number] of each group of character convolutions.")
    char_embedding_dim: int = described(16, "Numbers per character embedding.")
    max_characters_per_token: int = described(
        50, "Slots per word; a word keeps this many bytes less two.", "of at least 3"
    )
    activation: Activation = described("relu", "What follows the maximum over a filter's windows: relu or tanh.")
    n_highway: int = described(2, "Highway layers between the convolutions and the projection.", "0 or more")
    dim: int = described(4096, "Cells per LSTM layer and direction.")
    projection_dim: int = described(512, "Outputs per LSTM layer and direction, and of the character encoder.")
    n_layers: int = described(2, "LSTM layers.")
    cell_clip: float | None = described(3.0, "Bound of the cell state; null for none.")
    proj_clip: float | None = described(3.0, "Bound of the projected output; null for none.")
    use_skip_connections: bool = described(True, "Whether layers above the first add their input to their output.")
    dropout: float = described(
        0.1, "Chance of dropping an input of an LSTM layer or of the softmax.", "from 0 to below 1"
    )


@dataclass
class DataConfig:
    """The text: one sentence per line, tokens split by white space."""

    train_prefix: str = described(
        "", "A folder that `elmo-fast prepare` wrote, or a glob of text files ('corpus/train-*')."
    )
    heldout_prefix: str | None = described(
        None, "Glob of held-out text files, or a prepared folder, to be evaluated on."
    )
    vocab_file: str | None = described(
        None, "One word per line, <S>, </S> and <UNK> among them; absent: init_from's, or built from the training text."
    )
    vectors_file: str | None = described(
        None, "Vectors for `input: vectors`, projection_dim wide: word2vec, GloVe or safetensors, plain or .gz."
    )
    min_count: int = described(3, "Occurrences a word needs to enter a vocabulary built here.")
    max_vocab_size: int | None = described(None, "Most words of a vocabulary built here; null for no bound.")
    shuffle: bool = described(True, "Whether sentences come in a new random order each epoch.")
    placement: Literal["auto", "device", "host"] = described(
        "auto", "Where the corpus is kept: device (GPU memory), host, or auto: the device if it fits."
    )


@dataclass
class OptimizerConfig:
    """The loss, the optimizer and its schedule."""

    batch_size: int = described(128, "Rows of text of all processes together; fixed for the life of a run.")
    micro_batches: int = described(1, "Parts in which each process computes its rows, to save memory; same numbers.")
    exact_shards: int | None = described(
        None,
        "S, a power of two: the rows are S virtual shards whose gradients are added in one fixed order, so that any "
        "number of processes that divides S trains the same weights, to the bit; null: not so.",
    )
    unroll_steps: int = described(
        20, "Tokens per row and step; the gradient is cut there, the LSTM state is carried on."
    )
    state_reset: float = described(
        0.0,
        "Chance, per row and step, that the LSTM state of a row is reset to zeros, from which evaluation and embedding "
        "start; 0 as the original, 0.02 for short runs.",
        "from 0 to 1",
    )
    loss: str = described(
        "sampled_softmax",
        "What is trained: sampled_softmax, negative_sampling (noise from counts^0.75), hierarchical_softmax (Huffman's "
        "tree of the counts) or full_softmax.",
    )
    n_negative_samples_batch: int = described(
        8192, "Words drawn per direction and step, shared by all rows; of sampled_softmax and negative_sampling."
    )
    negatives: float | None = described(
        None, "Of negative_sampling: as how many words of noise those drawn count against a target; null: all of them."
    )
    optimiser: Literal["adagrad", "adamw"] = described(
        "adagrad", "adagrad, as the original, or adamw (which goes over the whole softmax table)."
    )
    learning_rate: float | None = described(None, "Step size; null: 0.2 for adagrad, 0.001 for adamw.")
    schedule: Literal["constant", "linear", "cosine"] = described(
        "constant", "Learning rate after the warm-up: constant, linear or cosine."
    )
    warmup_steps: int = described(0, "Steps over which the learning rate rises in a line.", "0 or more")
    final_share: float = described(
        0.0, "What is left of the learning rate at the end of a linear or cosine schedule.", "from 0 to 1"
    )
    initial_accumulator_value: float = described(1.0, "Initial value of AdaGrad's sums of squares.")
    weight_decay: float = described(0.0, "AdamW's decay of weights.", "0 or more")
    all_clip_norm_val: float = described(10.0, "Largest norm of all gradients together.")
    n_epochs: int = described(10, "Passes over the training text.")
    n_train_tokens: int | None = described(
        None, "Words per pass, bilm-tf's way to plan steps; null: every word, exactly."
    )

    @property
    def rate(self) -> float:
        """The learning rate in force."""
        return DEFAULT_RATES[self.optimiser] if self.learning_rate is None else self.learning_rate


@dataclass
class RunConfig:
    """Where results go, how long the run may take, and on what it computes."""

    save_dir: str = described("", "Folder for checkpoints, vocabulary, options and metrics.jsonl.")
    resume: str = described(
        "auto", "auto: resume from the newest checkpoint of save_dir, if there is one; never; or a checkpoint."
    )
    allow_other_corpus: bool = described(
        False, "Resume from a checkpoint with another text, from the start of that text."
    )
    init_from: str | None = described(None, "Model whose weights a new run starts from; words known to it keep theirs.")
    max_steps: int | None = described(None, "Most steps; null for as many as n_epochs needs.")
    max_seconds: float | None = described(None, "Most seconds of training until the run is resumed; null for no bound.")
    checkpoint_interval: int = described(1250, "Steps between checkpoints; one is also written at the end.")
    keep_checkpoints: int = described(2, "Newest checkpoints that stay; older ones are removed.")
    heldout_interval: int | None = described(
        None,
        "Steps between evaluations of heldout_prefix, beside the one at the end; null: a tenth of the planned steps, "
        "at least log_interval.",
    )
    log_interval: int = described(100, "Steps between progress lines and rows of metrics.jsonl.")
    tensorboard: bool = described(False, "Whether to write the same figures for TensorBoard, to save_dir/tensorboard.")
    seed: int = described(0, "Seed of initial weights, sentence order, dropout and negative samples.", "0 or more")
    precision: Literal[Precision, "tf32"] = described(
        "float32",
        "Precision of the operands of matrix products: float32, bfloat16, float16, or tf32 (NVIDIA GPUs; the large "
        "products only).",
    )
    backend: Backend = described(
        "auto",
        "Backend of the ops: auto, native (C++), cuda, triton, triton_persistent or reference (plain torch); an op "
        "without it takes auto.",
    )
    cuda_graph: bool = described(
        True,
        "Whether a GPU replays training steps from CUDA graphs (with several processes or adamw: their forward and "
        "backward passes, and no exchange of gradients overlaps them); false: the host launches each kernel.",
    )
    threads: int | None = described(None, "CPU threads; null leaves torch's choice.")


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
        """Builds the four sections from one dictionary of field names.

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
    """The names of the configurations that come with the package, smallest first."""
    return ["tiny", "small", "medium", "original", "original_h200"]


def preset_file(name: str) -> pathlib.Path:
    """The YAML file of a preset.

    Raises ElmoFastError that lists the presets when there is none of that name.
    """
    check_choice("preset", name, presets())
    return PRESET_FOLDER / f"{name}.yaml"


def load_preset(name: str) -> PretrainConfig:
    """The configuration of a preset: the fields its YAML file names, the defaults for the rest."""
    import yaml

    return PretrainConfig.from_flat(yaml.safe_load(preset_file(name).read_text(encoding="utf-8")))
