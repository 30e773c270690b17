"""Conversion between files and a state (plain dictionary of tensors) with ElmoOptions. Knows no module.

A state is a flat dictionary of float32 tensors under the names of AllenNLP's `_ElmoBiLm`. E character embedding, W
filters (all widths), D projection, H cells, V words, k width, n filters of one width:

    _token_embedder._char_embedding_weights                   [262, E]   row 0 (the padding) is zero
    _token_embedder.char_conv_{i}.weight, .bias               [n, E, k], [n]
    _token_embedder._highways._layers.{j}.weight, .bias       [2W, W], [2W]   rows: transform, then minus the carry
    _token_embedder._projection.weight, .bias                 [D, W], [D]   absent: not projected (W = D)
    _elmo_lstm.{forward,backward}_layer_{l}.input_linearity.weight         [4H, D]   gates i, f, g, o
    _elmo_lstm.{forward,backward}_layer_{l}.state_linearity.weight, .bias  [4H, D], [4H]   includes the forget bias's +1
    _elmo_lstm.{forward,backward}_layer_{l}.state_projection.weight        [D, H]   absent: not projected (H = D)

of a model of lexicons (K characters, V words of w dimensions; either may be absent)

    _token_embedder._char_embedding_weights    [K + 1, E]   row 0 is zero, as below
    _token_embedder._word_vectors              [V + 1, w]
    _token_embedder._projection.weight         [D, w + W]   columns: word, then filters

of an LSTM that is joined, `_elmo_lstm.` before the names of ELMoForManyLangs (torch.nn.LSTM's, and its projection's)

    encoder.{weight_ih,weight_hh,bias_ih,bias_hh}_l{l}{,_reverse}    [4H, D or 2H], [4H, H], [4H], [4H]
    projection.weight, projection.bias                               [D, H], [D]

and, if a file has them,

    _word_embedding.weight           [V + 1, D]   row 0 is zero; a model of word ids has no _token_embedder
    softmax.weight, softmax.bias     [V, D], [V]   of a hierarchical softmax: of its inner nodes, [V - 1, D], [V - 1]
    softmax.counts                   [V]   how often each word is a target; noise and tree are built from these
    scalar_mix_{k}.gamma, scalar_mix_{k}.scalar_parameters.{j}     [1]
"""

from ..op_choices import LOSSES
from .allennlp import read_allennlp_state, task_settings
from .bilm_checkpoint import read_adagrad_sums
from .bilm_hdf5 import read_bilm_hdf5, read_token_embeddings, write_bilm_hdf5, write_token_embeddings
from .loading import (
    CHECKPOINTS,
    VOCABULARIES,
    VOCABULARY,
    file_beside,
    format_of,
    is_model,
    load_checkpoint,
    model_files,
    model_folder,
    saved_steps,
    step_name,
    stored_tokenizer,
)
from .named_models import (
    PUBLISHED,
    bundled_models,
    cached_folder,
    download,
    missing_model,
    named_folder,
    pretrained_folder,
    published_folder,
    upload,
)
from .options import CharCnnOptions, ElmoOptions, LexiconOptions, LstmOptions, read_options, write_options
from .safetensors_folder import load_folder, put_model, read_config, save_folder
from .state import State, bilm_part, check_state, from_int8, state_shapes, to_int8

__all__ = [
    "CHECKPOINTS",
    "LOSSES",
    "PUBLISHED",
    "VOCABULARIES",
    "VOCABULARY",
    "CharCnnOptions",
    "ElmoOptions",
    "LexiconOptions",
    "LstmOptions",
    "State",
    "bilm_part",
    "bundled_models",
    "cached_folder",
    "check_state",
    "download",
    "file_beside",
    "format_of",
    "from_int8",
    "is_model",
    "load_checkpoint",
    "load_folder",
    "missing_model",
    "model_files",
    "model_folder",
    "named_folder",
    "pretrained_folder",
    "published_folder",
    "put_model",
    "read_adagrad_sums",
    "read_allennlp_state",
    "read_bilm_hdf5",
    "read_config",
    "read_options",
    "read_token_embeddings",
    "save_folder",
    "saved_steps",
    "state_shapes",
    "step_name",
    "stored_tokenizer",
    "task_settings",
    "to_int8",
    "upload",
    "write_bilm_hdf5",
    "write_options",
    "write_token_embeddings",
]
