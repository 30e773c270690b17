"""ELMo's representations: the biLM's layers, mixed, dropped out, markers removed."""

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo_fast.checkpoints import (
    VOCABULARY,
    ElmoOptions,
    State,
    is_model,
    load_checkpoint,
    model_files,
    pretrained_folder,
    read_config,
    read_options,
    save_folder,
    task_settings,
)
from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.modules._loading import (
    Module,
    explains_missing_arguments,
    load_state,
    vocabulary_of,
    without_prefix,
)
from elmo_fast.modules.bilm import BiLM, with_bilm_keywords
from elmo_fast.modules.boundaries import mask_without_boundaries
from elmo_fast.modules.scalar_mix import ScalarMix, mixes
from elmo_fast.modules.word_encoder import WordEncoder
from elmo_fast.ops._checks import IDS, check_tensor


class Elmo(nn.Module):
    """Contextual word representations from a pretrained biLM, as learned mixes of its layers.

    Args:
        options_file, weight_file: as in BiLM; options.json with None for the weights: new parameters, as from an
            ElmoOptions.
        num_output_representations: M, the number of mixes, each with its own weights; 0 gives an empty list, as in
            AllenNLP.
        requires_grad: whether the biLM is trained too.
        do_layer_norm: as in ScalarMix.
        dropout: on each mix, in training.
        vocab_to_cache: as in BiLM.
        keep_sentence_boundaries: whether to keep the representations of BOS and EOS.
        scalar_mix_parameters: the mixes' weights before the softmax, L+1 numbers, fixed; None: zeros, trained.
        module: a biLM to use instead of the files (both None then): it has `num_layers`, returns 'activations' and
            'mask'.
        statistics: as in ScalarMix, for do_layer_norm.
        stateful: whether each batch starts from the state in which the last one ended, as in AllenNLP; False: the same
            sentence always has the same vectors.
        settings: unique_words, cache_size, precision, backend, vocabulary, prefix, cuda_graphs: as in BiLM.

    Raises: ElmoFastError, CheckpointError.

    Source: Peters et al. 2018, section 3.2; AllenNLP's `Elmo`.
    """

    _advice = "for a model by its name or folder, write Elmo.from_pretrained('mini')"

    @with_bilm_keywords
    @explains_missing_arguments
    def __init__(
        self,
        options_file: str | os.PathLike[str] | ElmoOptions | None,
        weight_file: str | os.PathLike[str] | State | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: list[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: nn.Module | None = None,
        *,
        statistics: str = "allennlp",
        stateful: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__()
        if not hasattr(num_output_representations, "__index__") or num_output_representations < 0:
            raise ElmoFastError(
                f"num_output_representations must be the number of mixes, usually 1; got {num_output_representations!r}"
            )
        backend = settings.get("backend", "auto")
        if module is not None:
            others = {name: value for name, value in settings.items() if name != "backend"}  # which the mixes have
            others |= {} if stateful else {"stateful": False}
            if options_file is not None or weight_file is not None or others:
                raise ElmoFastError(
                    "module replaces options_file, weight_file and the settings of a biLM; give None for both files "
                    f"and no other setting; got {options_file!r}, {weight_file!r}, {others!r}"
                )
            self._elmo_lstm = module
        else:
            path = options_file if weight_file is None and isinstance(options_file, str | os.PathLike) else None
            if path is not None and os.path.isfile(path) and not is_model(path):
                options_file = read_options(path)
                if options_file.reads_word_ids and settings.get("vocabulary") is None:
                    settings["vocabulary"] = vocabulary_of(path)
            options: Any = options_file  # None: reading it says what is missing
            self._elmo_lstm = BiLM(options, weight_file, requires_grad, vocab_to_cache, stateful=stateful, **settings)
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(p=dropout)
        self._count = num_output_representations
        self._settings = {
            "num_output_representations": num_output_representations,
            "do_layer_norm": bool(do_layer_norm),
            "dropout": dropout,
            "keep_sentence_boundaries": keep_sentence_boundaries,
            "statistics": statistics,
        }
        for k in range(num_output_representations):
            mix = ScalarMix(
                self._elmo_lstm.num_layers,  # type: ignore[arg-type]
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
                statistics=statistics,
                backend=backend,
            )
            self.add_module(f"scalar_mix_{k}", mix)

    def extra_repr(self) -> str:
        """Return the arguments that save_pretrained writes."""
        return ", ".join(f"{name}={value!r}" for name, value in self._settings.items())

    @classmethod
    @with_bilm_keywords
    def from_pretrained(
        cls,
        model: str | os.PathLike[str],
        num_output_representations: int | None = None,
        requires_grad: bool = False,
        do_layer_norm: bool | None = None,
        dropout: float | None = None,
        vocab_to_cache: list[str] | None = None,
        keep_sentence_boundaries: bool | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        *,
        statistics: str | None = None,
        stateful: bool = False,
        **settings: Any,
    ) -> "Elmo":
        """Load a model from a folder or the hub, with the mixes' weights and settings of save_pretrained.

        Args:
            model: the folder of a model or a run, its archive, a name that `elmo-fast models` lists ("mini",
                "original", ...), or a name on the hub ("user/name@revision").
            num_output_representations: None: the number of mixes in the folder, or 1 if there are none.
            do_layer_norm, dropout, keep_sentence_boundaries, statistics: as in Elmo; None: as saved.
            scalar_mix_parameters: as in Elmo; None: the saved weights of the mixes.
            stateful: whether state is carried from batch to batch. AllenNLP's does, and its vectors of a sentence then
                depend on the sentences before; by default the same sentence always has the same vectors.
            requires_grad, vocab_to_cache, settings: as in Elmo.

        Raises: ElmoFastError, also if the folder has a different number of mixes; CheckpointError.
        """
        folder, prefix = pretrained_folder(model), settings.pop("prefix", None)
        state, options = load_checkpoint(folder, prefix=prefix)
        saved_mixes = len({name.partition(".")[0] for name in _mixes_of(state)})
        if saved_mixes and num_output_representations not in (None, saved_mixes):
            raise ElmoFastError(
                f"num_output_representations must be {saved_mixes}, the number of mixes in {folder}, or None; got "
                f"{num_output_representations}"
            )
        config, weights = model_files(folder)[:2]
        saved: Any = None
        if weights.name == "config.json":  # of an AllenNLP model
            saved = task_settings(config, prefix)
        elif config.name == "config.json":
            extra = read_config(folder).get("extra")
            saved = extra.get("elmo") if isinstance(extra, dict) else None
        own = {  # what save_pretrained writes
            "num_output_representations": saved_mixes or num_output_representations,
            "do_layer_norm": do_layer_norm,
            "dropout": dropout,
            "keep_sentence_boundaries": keep_sentence_boundaries,
            "statistics": statistics,
        }
        arguments: dict[str, Any] = {"num_output_representations": 1}
        arguments |= {name: saved[name] for name in own if name in saved} if isinstance(saved, dict) else {}
        arguments |= {name: value for name, value in own.items() if value is not None}
        if options.reads_word_ids and settings.get("vocabulary") is None:
            settings["vocabulary"] = vocabulary_of(folder)
        elmo = cls(
            options,
            state,
            requires_grad=requires_grad,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            stateful=stateful,
            **arguments,
            **settings,
        )
        if saved_mixes and scalar_mix_parameters is None:
            for k, mix in enumerate(elmo._scalar_mixes):
                load_state(mix, without_prefix(state, f"scalar_mix_{k}.") or {}, f"scalar_mix_{k}")
        return elmo

    def save_pretrained(self, folder: str | os.PathLike[str], *, precision: str = "float32") -> None:
        """Write config.json and model.safetensors, all that from_pretrained needs.

        They hold the biLM and the mixes' weights; a biLM that reads word ids also gets vocab.txt. `stateful` is not
        saved: to go on as the constructor does by default, pass `stateful=True` to from_pretrained.

        precision: "float32", or "int8" for weights of about a quarter of the size, as precision="int8" multiplies them;
        loaded, they are float32 again, rounded.

        Raises: ElmoFastError: a biLM from another package, another precision; CheckpointError: a write error, or
        numbers that are not finite float32.
        """
        if not isinstance(self._elmo_lstm, BiLM):
            raise ElmoFastError(f"save_pretrained writes a BiLM of elmo_fast; got {type(self._elmo_lstm).__name__}")
        save_bilm(folder, self._elmo_lstm, _mixes_of(self.state_dict()), {"elmo": self._settings}, precision)

    @property
    def _scalar_mixes(self) -> list[ScalarMix]:
        return [self._modules[f"scalar_mix_{k}"] for k in range(self._count)]  # type: ignore[misc]

    def get_output_dim(self) -> int:
        """2D, the width of a representation."""
        return self._elmo_lstm.get_output_dim()  # type: ignore[operator]

    def batch_to_ids(self, batch: Sequence[Sequence[str]]) -> Tensor:
        """Return the input of `forward` for tokenized sentences; see BiLM. Raises: ElmoFastError."""
        return self._elmo_lstm.batch_to_ids(batch)  # type: ignore[operator]

    def reset_states(self) -> None:
        """Forget the carried state: the next batch starts from zeros."""
        self._elmo_lstm.reset_states()  # type: ignore[operator]

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Representations of a batch of sentences.

        Args:
            inputs: character ids from batch_to_ids, [B, T, C] int64, or with more dimensions, [B, ..., T, C]. For a
                biLM that reads word ids: ids + 1 from this module's `batch_to_ids`, [B, ..., T] int64.
            word_inputs: indices into vocab_to_cache, [B, T] or [B, ..., T]; see BiLM.

        Returns:
            'elmo_representations': M tensors [B, ..., T, 2D]; 'mask': [B, ..., T] bool. T+2 with
            keep_sentence_boundaries.
        """
        check_tensor("Elmo", "inputs", inputs, IDS)
        if word_inputs is not None and not self._has_cached_vocab:
            word_inputs = None  # as in AllenNLP: indices mean nothing without a vocabulary
        if word_inputs is not None:
            check_tensor("Elmo", "word_inputs", word_inputs)
        # The dimensions of one sentence: words, and their characters.
        own = 1 if getattr(self._elmo_lstm, "reads_words", False) else 2
        outer = inputs.shape[:-own] if word_inputs is None else word_inputs.shape[:-1]
        flat = inputs.reshape(-1, *inputs.shape[-own:]) if inputs.dim() > own + 1 else inputs
        if word_inputs is not None:
            word_inputs = word_inputs.reshape(-1, word_inputs.shape[-1])
        output = self._elmo_lstm(flat, word_inputs)
        mask, inner_mask = output["mask"], mask_without_boundaries(output["mask"])
        # On a GPU the mixes' kernel applies dropout as it writes: no extra pass, no mask in memory. Its random numbers
        # differ from torch's, so the CPU uses torch's.
        fused = self.training and mask.device.type == "cuda" and 0 < self._dropout.p < 1
        representations: list[Tensor] = []
        shape = (*outer, mask.shape[1] if self._keep_sentence_boundaries else inner_mask.shape[1])
        if self._count:  # with the markers, which the statistics may need
            mixed = mixes(self._scalar_mixes, output["activations"], mask, dropout=fused * self._dropout.p)
            if not self._keep_sentence_boundaries:
                mixed = torch.where(inner_mask[..., None], mixed[:, :, 1:-1], 0)
            for k in range(self._count):  # not by unbind, whose results autograd forbids to change in place
                mix = mixed[k] if fused else self._dropout(mixed[k])
                representations.append(mix.reshape(*shape, mix.shape[-1]))
        mask = mask if self._keep_sentence_boundaries else inner_mask
        return {"elmo_representations": representations, "mask": mask.reshape(shape)}


def _mixes_of(state: State) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if name.startswith("scalar_mix_")}


def save_bilm(
    folder: str | os.PathLike[str],
    bilm: BiLM,
    mixes: State | None = None,
    extra: dict[str, Any] | None = None,
    precision: str = "float32",
) -> None:
    """Write a biLM with its scalar mixes, and vocab.txt for a biLM of word ids that knows its words.

    extra, precision: as in save_folder. Raises: CheckpointError, ElmoFastError.
    """
    save_folder(folder, {**bilm.checkpoint_state(), **(mixes or {})}, bilm.options, extra, precision)
    encoder = bilm.encoder
    if isinstance(encoder, WordEncoder) and encoder.vocabulary is not None:
        encoder.vocabulary.write(os.path.join(folder, VOCABULARY))


class ElmoTokenEmbedder(Module):
    """Elmo with one output representation, and a linear layer on it if projection_dim is given.

    Args:
        options_file, weight_file, do_layer_norm, dropout, requires_grad, vocab_to_cache, scalar_mix_parameters: as in
            Elmo.
        projection_dim: width of the linear layer's output; None: no such layer.
        settings: the other keywords of Elmo.

    Raises: ElmoFastError, CheckpointError.

    Source: AllenNLP's `ElmoTokenEmbedder` (0.9 and 1.0 to 2.x share this order).
    """

    _advice = "for a model by its name or folder, give that as options_file, and None as weight_file"

    @explains_missing_arguments
    def __init__(
        self,
        options_file: str | os.PathLike[str] | ElmoOptions,
        weight_file: str | os.PathLike[str] | None,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: list[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        check_counts(projection_dim=projection_dim or None)
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            requires_grad=requires_grad,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            **settings,
        )
        self.output_dim = projection_dim or self._elmo.get_output_dim()
        self._projection = nn.Linear(self._elmo.get_output_dim(), projection_dim) if projection_dim else None

    def get_output_dim(self) -> int:
        """Width of a representation."""
        return self.output_dim

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        """Return the representations [B, ..., T, output_dim].

        Args:
            elmo_tokens: character ids from batch_to_ids, [B, ..., T, C] int64.
            word_inputs: indices into vocab_to_cache, [B, ..., T]; see BiLM.
        """
        representation = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        return representation if self._projection is None else self._projection(representation)
