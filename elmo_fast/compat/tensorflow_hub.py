"""TensorFlow Hub's module google/elmo (versions 1 to 3) under its names: change the line that loads it, keep the code.

    elmo = Module("original", trainable=True)       # hub.Module("https://tfhub.dev/google/elmo/3", trainable=True)
    elmo(["the cat is on the mat"], as_dict=True)["elmo"]
    elmo.signatures["default"](["the cat is on the mat"])["elmo"]                     # of hub.load(...), TensorFlow 2

Names, signatures and shapes are the module's. The weights are those of the folder that is named: google/elmo's own are
only in TensorFlow's format, and were trained on the 1 Billion Word Benchmark as those of AllenNLP's "original" model.
That both give the same vectors is not proven here.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmo_fast.embed.token_vectors import shared_bilm
from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.modules.bilm import BiLM
from elmo_fast.modules.boundaries import mask_without_boundaries
from elmo_fast.modules.scalar_mix import ScalarMix
from elmo_fast.text.checks import check_sentences, checked_sentences, may_hold_words

__all__ = ["Module"]

SIGNATURES = ("default", "tokens")


class Module(nn.Module):
    """google/elmo: a dictionary of the biLM's layers, their mix, and the mean of the mix over the tokens.

    Args:
        spec: a folder or an archive with a model, a name on the hub, or a BiLM.
        trainable: whether the mix is trained: gamma and a weight for each layer. The biLM never is, as in versions 2
            and 3.
        settings: device, as in TokenVectors; precision, backend, prefix, vocabulary, as in BiLM.

    Raises: ElmoFastError, CheckpointError.
    """

    def __init__(self, spec: str | os.PathLike[str] | BiLM, trainable: bool = False, **settings: Any) -> None:
        super().__init__()
        self.bilm = spec if isinstance(spec, BiLM) else shared_bilm(spec, **settings)
        with next(self.bilm.parameters()).device:
            self.mix = ScalarMix(self.bilm.num_layers, trainable=trainable)

    def forward(
        self,
        inputs: Sequence[str] | Mapping[str, Any],
        signature: str = "default",
        as_dict: bool = False,
    ) -> Tensor | dict[str, Tensor]:
        """Return the outputs for B sentences of at most T tokens, float32; 0 behind the end of a sentence.

        Args:
            inputs: with the signature "default": B strings, split on spaces; with "tokens": a dictionary of `tokens`,
                B lists of T strings, and `sequence_len`, [B], how many of them count.
            signature: "default" or "tokens".
            as_dict: whether to return all outputs, or the output `default` alone.

        Returns:
            word_emb: the characters' vectors, [B, T, D]; lstm_outputs1, lstm_outputs2 (and so on, one for each LSTM
            layer): [B, T, 2D]; elmo: gamma times the sum of the layers by the mix's weights, word_emb doubled, [B, T,
            2D]; default: the mean of `elmo` over the tokens of each sentence, [B, 2D], 0 for an empty one.

        Raises: ElmoFastError.
        """
        check_choice("signature", signature, SIGNATURES)
        outputs = self._outputs(_split(inputs) if signature == "default" else _cut(inputs))
        return outputs if as_dict else outputs["default"]

    @property
    def signatures(self) -> dict[str, Callable[..., dict[str, Tensor]]]:
        """The two signatures as functions, as of hub.load: "default" takes the strings, "tokens" named arguments."""
        return {
            "default": lambda text: self(text, "default", as_dict=True),
            "tokens": lambda tokens, sequence_len: self(
                {"tokens": tokens, "sequence_len": sequence_len}, "tokens", as_dict=True
            ),
        }

    def _outputs(self, sentences: list[list[str]]) -> dict[str, Tensor]:
        device = next(self.bilm.parameters()).device
        with torch.no_grad():
            output = self.bilm(self.bilm.batch_to_ids(sentences).to(device), stateful=False)
        mask = mask_without_boundaries(output["mask"])[..., None]
        layers = [torch.where(mask, layer[:, 1:-1], 0) for layer in output["activations"]]
        mixed = self.mix(layers)
        named = {f"lstm_outputs{number}": layer for number, layer in enumerate(layers[1:], start=1)}
        mean = mixed.sum(1) / mask.sum(1).clamp(min=1)
        return {"word_emb": layers[0].chunk(2, dim=-1)[0], **named, "elmo": mixed, "default": mean}


def _split(inputs: Any) -> list[list[str]]:
    sentences = checked_sentences(inputs, "inputs", lambda text: text.split(" "), texts_only=True)
    return [list(filter(None, words)) for words in sentences]


def _cut(inputs: Any) -> list[list[str]]:
    """Return the tokens of each sentence without those behind its end."""
    if not isinstance(inputs, Mapping) or inputs.keys() != {"tokens", "sequence_len"}:
        raise ElmoFastError(
            f'inputs must be a dictionary of tokens and sequence_len with the signature "tokens"; got {inputs!r:.60}'
        )
    rows, lengths = _as_list(inputs["tokens"]), _as_list(inputs["sequence_len"])
    check_sentences(rows, "tokens")
    rows = list(checked_sentences(map(_decoded, rows), "tokens"))
    fits = isinstance(lengths, list | tuple) and len(rows) == len(lengths)
    pairs = list(zip(rows, lengths, strict=True)) if fits else []
    if not fits or not all(isinstance(n, int | np.integer) and 0 <= n <= len(row) for row, n in pairs):
        raise ElmoFastError(
            f"sequence_len must be a number from 0 to the number of tokens for each of {len(rows)} sentences; got "
            f"{lengths!r:.60}"
        )
    return [row[:n] for row, n in pairs]


def _as_list(value: Any) -> Any:
    """Return an array or a tensor as a list."""
    return value.tolist() if hasattr(value, "tolist") else value


def _decoded(row: Any) -> Any:
    """Return a list of words with TensorFlow's strings, which are bytes, as Python's."""
    row = _as_list(row)
    return [word.decode() if isinstance(word, bytes) else word for word in row] if may_hold_words(row) else row
