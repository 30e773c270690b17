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

import types

from ..op_choices import LOSSES as LOSSES
from .allennlp import read_allennlp_state as read_allennlp_state
from .allennlp import task_settings as task_settings
from .bilm_checkpoint import read_adagrad_sums as read_adagrad_sums
from .bilm_hdf5 import read_bilm_hdf5 as read_bilm_hdf5
from .bilm_hdf5 import read_token_embeddings as read_token_embeddings
from .bilm_hdf5 import write_bilm_hdf5 as write_bilm_hdf5
from .bilm_hdf5 import write_token_embeddings as write_token_embeddings
from .loading import CHECKPOINTS as CHECKPOINTS
from .loading import VOCABULARIES as VOCABULARIES
from .loading import VOCABULARY as VOCABULARY
from .loading import file_beside as file_beside
from .loading import format_of as format_of
from .loading import is_model as is_model
from .loading import load_checkpoint as load_checkpoint
from .loading import model_files as model_files
from .loading import model_folder as model_folder
from .loading import saved_steps as saved_steps
from .loading import step_name as step_name
from .loading import stored_tokenizer as stored_tokenizer
from .named_models import PUBLISHED as PUBLISHED
from .named_models import bundled_models as bundled_models
from .named_models import cached_folder as cached_folder
from .named_models import download as download
from .named_models import missing_model as missing_model
from .named_models import named_folder as named_folder
from .named_models import pretrained_folder as pretrained_folder
from .named_models import published_folder as published_folder
from .named_models import upload as upload
from .options import CharCnnOptions as CharCnnOptions
from .options import ElmoOptions as ElmoOptions
from .options import LexiconOptions as LexiconOptions
from .options import LstmOptions as LstmOptions
from .options import read_options as read_options
from .options import write_options as write_options
from .safetensors_folder import load_folder as load_folder
from .safetensors_folder import put_model as put_model
from .safetensors_folder import read_config as read_config
from .safetensors_folder import save_folder as save_folder
from .state import State as State
from .state import bilm_part as bilm_part
from .state import check_state as check_state
from .state import from_int8 as from_int8
from .state import state_shapes as state_shapes
from .state import to_int8 as to_int8

# All of these, and not the modules that they come from.
__all__ = [name for name, thing in globals().items() if name[0] != "_" and not isinstance(thing, types.ModuleType)]
