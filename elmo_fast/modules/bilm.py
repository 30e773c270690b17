"""The bidirectional language model: encoder of characters or word ids, and stacked LSTM."""

import hashlib
import inspect
import json
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.parametrize import is_parametrized

from elmo_fast._runtime.memory import bytes_of
from elmo_fast.checkpoints import ElmoOptions
from elmo_fast.errors import ElmoFastError, not_a_string
from elmo_fast.modules._graph_replay import CAPTURED, replay
from elmo_fast.modules._loading import (
    Module,
    Weights,
    check_settings,
    has_hooks,
    load_state,
    read_bilm,
    read_uncalled,
    vocabulary_of,
    without_prefix,
)
from elmo_fast.modules.character_encoder import CACHE_SIZE, CharacterEncoder, WordCache
from elmo_fast.modules.elmo_lstm import Drop, ElmoLstm, JoinedLstm, LayerStates, both_ways, separate
from elmo_fast.modules.word_encoder import CachedWords, WordEncoder
from elmo_fast.op_choices import Backend, InferencePrecision
from elmo_fast.ops._checks import check_tensor
from elmo_fast.ops._graphs import Graphs
from elmo_fast.ops._precision import torch_settings
from elmo_fast.text import Vocabulary

_Function = TypeVar("_Function", bound=Callable[..., Any])


class BiLM(Module):
    """ELMo's bidirectional language model: the activations of all its layers.

    Args:
        options_file: bilm-tf's options.json, or an ElmoOptions; or without weight_file a model's folder, its archive,
            or a name that `elmo-fast models` lists.
        weight_file: any checkpoint that elmo_fast.checkpoints reads; with an ElmoOptions: a state from load_checkpoint,
            or None for new parameters, initialized as in bilm-tf.
        requires_grad: whether the parameters are trained.
        vocab_to_cache: words whose context-free vectors are computed now, for `word_inputs`; the first one is the
            padding. With requires_grad they are trained apart from the encoder.
        stateful: whether each row of a batch starts from its final state in the previous batch, as in AllenNLP and
            bilm-tf; False: the same sentence always has the same vectors.
        unique_words, cache_size: as in CharacterEncoder.
        precision: "float32" | "bfloat16" | "float16" | "int8", of the operands of the matrix products; int8 has no
            gradients.
        backend: one of op_choices.BACKEND_CHOICES; an op without it takes "auto".
        vocabulary: the words of a model that reads word ids (without char_cnn in its options); None: vocab.txt next to
            the files, if present.
        prefix: where the names of the biLM begin in an AllenNLP model that contains several, as the error message lists
            them.
        cuda_graphs: whether passes without gradients on a GPU are captured in CUDA graphs and replayed. Capturing a
            batch's sizes waits for the GPU and empties torch's cache once; replaying spares the launches.

    Attributes:
        reads_words: whether the model reads word ids instead of characters or lexicons.

    Raises: ElmoFastError, CheckpointError.

    Source: Peters et al. 2018; parameter names as in AllenNLP's `_ElmoBiLm`.
    """

    def __init__(
        self,
        options_file: str | os.PathLike[str] | ElmoOptions,
        weight_file: str | os.PathLike[str] | Weights | None = None,
        requires_grad: bool = False,
        vocab_to_cache: list[str] | None = None,
        *,
        stateful: bool = True,
        unique_words: bool = True,
        cache_size: int = CACHE_SIZE,
        precision: InferencePrecision = "float32",
        backend: Backend = "auto",
        vocabulary: Vocabulary | None = None,
        prefix: str | None = None,
        cuda_graphs: bool = False,
    ) -> None:
        super().__init__()
        check_settings(precision, backend)
        self.options, state = read_bilm(options_file, weight_file, prefix)
        self.reads_words = self.options.reads_word_ids
        # What reads numbers of words: the encoder of a model of word ids, or the vectors of vocab_to_cache.
        self._word_embedding: WordEncoder | CachedWords | None = None
        if self.reads_words:
            vocabulary = vocabulary or vocabulary_of(options_file, weight_file)
            words = without_prefix(state, "_word_embedding.")
            self._word_embedding = WordEncoder(self.options, requires_grad, vocabulary=vocabulary, state=words)
        else:
            self._token_embedder = CharacterEncoder(
                self.options,
                requires_grad=requires_grad,
                unique_words=unique_words,
                cache_size=cache_size,
                precision=precision,
                backend=backend,
                state=without_prefix(state, "_token_embedder."),
            )
        lstm, of_lstm = self.options.lstm, without_prefix(state, "_elmo_lstm.")
        width, projection = lstm.projection_dim, "forward_layer_0.state_projection.weight"
        self._elmo_lstm: ElmoLstm | JoinedLstm
        if lstm.joined:
            self._elmo_lstm = JoinedLstm(width, lstm.dim, lstm.n_layers, requires_grad, precision=precision)
        else:
            self._elmo_lstm = ElmoLstm(
                width,
                width,
                lstm.dim,
                lstm.n_layers,
                requires_grad,
                0.0,  # no dropout of the hidden state
                *lstm.clips,
                stateful=stateful,
                use_skip_connections=lstm.use_skip_connections,
                project=lstm.dim != width if of_lstm is None else projection in of_lstm,
                initialise=False,
                precision=precision,
                backend=backend,
            )
        load_state(self._elmo_lstm, of_lstm, "_elmo_lstm")
        self.num_layers = self.options.lstm.n_outputs + 1
        self._requires_grad = requires_grad
        self.cuda_graphs = cuda_graphs
        self._graphs = Graphs(CAPTURED)
        if vocab_to_cache:
            if self.reads_words:
                raise ElmoFastError("vocab_to_cache needs a model that reads characters; this one reads word ids")
            self.create_cached_cnn_embeddings(vocab_to_cache)

    def checkpoint_state(self) -> dict[str, Tensor]:
        """Return the parameters under the names of elmo_fast.checkpoints, without the vectors of vocab_to_cache.

        Warns if these have been trained and so differ from the character encoder's.
        """
        if self.reads_words:
            return self.state_dict()
        if self._word_embedding is not None and self._word_embedding.weight.requires_grad:
            warnings.warn("a checkpoint cannot store the trained vectors of vocab_to_cache: left out", stacklevel=4)
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("_word_embedding.")}

    @property
    def encoder(self) -> CharacterEncoder | WordEncoder:
        """The encoder of context-free vectors."""
        return self._word_embedding if isinstance(self._word_embedding, WordEncoder) else self._token_embedder

    def batch_to_ids(self, batch: Sequence[Sequence[str]]) -> Tensor:
        """Return the input of `forward` for tokenized sentences, int64.

        It holds character ids [B, T, C], word ids + 1 [B, T] or, of a model of lexicons, both [B, T, C + 1]: the word's
        id behind its characters'.

        Raises: ElmoFastError if a model of word ids does not know its vocabulary.
        """
        return self.encoder.ids(batch)

    def get_output_dim(self) -> int:
        """2D, the width of every layer's activations."""
        return 2 * self.encoder.output_dim

    @property
    def lstm(self) -> ElmoLstm | JoinedLstm:
        """The LSTM of all layers and both directions."""
        return self._elmo_lstm

    @property
    def runs_in_chunks(self) -> bool:
        """Whether each direction runs by itself, so that a long sentence can be run chunk by chunk."""
        return isinstance(self._elmo_lstm, ElmoLstm)

    @property
    def runs_in_parts(self) -> bool:
        """Whether `context_free`, `lstm` and `activations` may run apart: hooks and another `forward` need a call."""
        own = "forward" not in vars(self) and type(self).forward is BiLM.forward
        return own and not has_hooks(self, self.encoder, self._elmo_lstm)

    @property
    def stateful(self) -> bool:
        """Whether state is carried from batch to batch; can be assigned, but an LSTM that is joined carries none."""
        return self._elmo_lstm.stateful

    @stateful.setter
    def stateful(self, carry: bool) -> None:
        if self.runs_in_chunks:
            self._elmo_lstm.stateful = carry

    @property
    def precision(self) -> str:
        """Precision of the operands of the matrix products; several, as "float32 and int8", if parts differ."""
        lstm = self._elmo_lstm
        layers = [lstm] if isinstance(lstm, JoinedLstm) else [*lstm.forward_layers, *lstm.backward_layers]
        encoder = self.encoder.precision if isinstance(self.encoder, CharacterEncoder) else "float32"
        return " and ".join(dict.fromkeys([*(layer.precision for layer in layers), encoder]))

    @property
    def arithmetic(self) -> str:
        """How numbers are computed now: "float32", or other precisions and torch's settings.

        With equal weights and input, an equal text means equal numbers on one machine, to the order of sums: the key
        of whatever outlives a call contains it.
        """
        return ", ".join([self.precision, *torch_settings(next(self.parameters()).device)])

    def reset_states(self) -> None:
        """Forget the carried state: the next batch starts from zeros."""
        self._elmo_lstm.reset_states()

    def forward(
        self, inputs: Tensor, word_inputs: Tensor | None = None, *, stateful: bool | None = None
    ) -> dict[str, Any]:
        """Run both directions over a batch of sentences, with BOS and EOS added to each.

        Args:
            inputs: character ids from batch_to_ids, [B, T, C] int64; rows of 0 are padding. For a model of lexicons,
                [B, T, C + 1], or one that reads word ids, [B, T]: from its own `batch_to_ids`; 0 is padding.
            word_inputs: indices into vocab_to_cache, [B, T] int64, 0 padding, instead of the characters; if one is
                out of range, or nothing is cached, the characters are used.
            stateful: overrides the module's setting for this call; None: no override.

        Returns:
            'activations': L+1 tensors [B, T+2, 2D], lowest first (layer 0 is the word's vector, twice), 0 at padding;
            'mask': [B, T+2] bool.

        Raises: ElmoFastError: inputs of a wrong shape; a stateful module that is exported or in use by another thread.
        """
        if word_inputs is not None:
            check_tensor("BiLM", "word_inputs", word_inputs)
        lstm = self._elmo_lstm
        carry = lstm.stateful if stateful is None else stateful
        cached = self._word_embedding if isinstance(self._word_embedding, CachedWords) else None
        if cached is not None and word_inputs is not None and cached.covers(word_inputs):
            encoded = cached(word_inputs)
        else:
            if self.cuda_graphs and isinstance(lstm, ElmoLstm) and not self.reads_words:
                replayed = replay(self._graphs, self, lstm, self._whole, inputs, carry)
                if replayed is not None:
                    return {"activations": separate(replayed[0]), "mask": replayed[1]}
            encoded = self.encoder(inputs)
        words, mask = encoded["token_embedding"], encoded["mask"]
        return {"activations": self.activations(words, mask, lstm(words, mask, stateful=carry)), "mask": mask}

    def forward_distinct(self, rows: Tensor, numbers: Tensor, *, stateful: bool) -> list[Tensor]:
        """Return the activations of `forward` for sentences whose distinct words are known: `encoder.distinct`."""
        lstm = self._elmo_lstm
        if isinstance(lstm, ElmoLstm):
            replayed = replay(self._graphs, self, lstm, self._whole, numbers, stateful, rows)
            if replayed is not None:
                return list(replayed[0].unbind(0))
        words, mask = self._token_embedder.forward_distinct(rows, numbers)
        return self.activations(words, mask, lstm(words, mask, stateful=stateful))

    def context_free(self, inputs: Tensor, cache: WordCache | None = None) -> tuple[Tensor, Tensor]:
        """Run the first part of `forward`: the words' vectors [B, T+2, D], each on its own, and their mask [B, T+2].

        cache: word vectors of earlier batches, from `encoder.new_cache()`.
        """
        encoded = self.encoder(inputs, cache)
        return encoded["token_embedding"], encoded["mask"]

    @staticmethod
    def activations(words: Tensor, mask: Tensor, outputs: Tensor) -> list[Tensor]:
        """Run the last part: join the words' vectors and the LSTM's outputs [L, B, T, 2D] to the activations."""
        lowest = torch.where(mask[..., None], torch.cat([words, words], dim=-1), 0)
        return [lowest, *separate(outputs)]

    def _whole(
        self, inputs: Tensor, state: LayerStates | None, out: Tensor | None, distinct: Tensor | None
    ) -> tuple[Tensor, Tensor, LayerStates]:
        """Run `forward` as a function of tensors: (activations [L+1, B, T+2, 2D], which are `out`, mask, state).

        distinct: as in `replay`.
        """
        if distinct is None:
            words, mask = self.context_free(inputs)
        else:
            words, mask = self._token_embedder.forward_distinct(distinct, inputs)
        outputs, state = self.separate_lstm.run_layers(words, words, mask.long().sum(dim=1), state)
        return torch.stack(self.activations(words, mask, both_ways(outputs)), out=out), mask, state

    @property
    def separate_lstm(self) -> ElmoLstm:
        """The LSTM of a model that runs in chunks, for calls of its parts: it must have no hooks."""
        read_uncalled(self._elmo_lstm)
        return self._elmo_lstm  # type: ignore[return-value]

    def run_streams(
        self, words: Tensor, state: LayerStates | None = None, lengths: Tensor | None = None, drop: Drop | None = None
    ) -> tuple[Tensor, LayerStates]:
        """Return the top layer of each direction over its own stream, to predict the next word of that stream.

        Nothing is added to the streams (they contain BOS and EOS), and the carried state of `forward` is not used. In
        training, dropout applies to the input of every LSTM layer, before the residual connection, and to the result.

        Args:
            words: context-free vectors, [2, B, T, D]; the backward stream, [1], in its reading order.
            state: from the previous call, (h [L, 2, B, D], c [L, 2, B, H]); None: zeros.
            lengths: positions of each row that are text, [B] int64; None: all T. The state does not change past them.
            drop: the dropout of training; None: the options' probability, with torch's global generator.

        Returns:
            (top [2, B, T, D], state, detached).

        Source: bilm-tf, training.py.
        """
        if not self.training:
            drop = None
        elif drop is None and self.options.dropout > 0:
            drop = lambda x, layer, direction: F.dropout(x, self.options.dropout)  # noqa: E731
        forward, backward = words.unbind(0)
        layers, (h, c) = self.separate_lstm.run_layers(
            forward, backward, lengths, state, reverse=(False, False), drop=drop
        )
        top = layers[-1]
        if drop is not None:
            top = torch.stack([drop(each, len(layers), direction) for direction, each in enumerate(top)])
        return top, (h.detach(), c.detach())

    def create_cached_cnn_embeddings(self, tokens: list[str]) -> None:
        """Compute the context-free vectors of `tokens` now.

        `word_inputs` index them in this order, 0 being the padding. Raises: ElmoFastError for a string instead of a
        list.
        """
        not_a_string(tokens, "vocab_to_cache", "a list of words")
        encoder = self._token_embedder
        boundaries = (encoder.spelling.begin, encoder.spelling.end)
        self._word_embedding = CachedWords(encoder.encode_words, tokens, self._requires_grad, boundaries)


def with_bilm_keywords(function: _Function) -> _Function:
    """Show `**settings` in the signature as BiLM's other keywords, for help(), documentation and completion."""
    own, keywords = inspect.signature(function), inspect.signature(BiLM).parameters
    named = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
    others = [each for each in keywords.values() if each.kind is each.KEYWORD_ONLY and each.name not in own.parameters]
    function.__signature__ = own.replace(parameters=[*named, *others])  # type: ignore[attr-defined]
    return function


def model_digest(model: BiLM) -> str:
    """Return the SHA-256 of a biLM's options and weights."""
    digest = hashlib.sha256(json.dumps(model.options.to_dict(), sort_keys=True).encode())
    tensors = model.checkpoint_state()
    for name, module in model.named_modules():
        if is_parametrized(module):  # a parametrization may read more than parameters and buffers
            tensors |= {f"{name}.{weight}": getattr(module, weight) for weight in module.parametrizations}
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(bytes_of(values))
    return digest.hexdigest()
