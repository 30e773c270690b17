"""ELMo as torch modules: parameters and state here, arithmetic in elmo_fast.ops.

Parameters have AllenNLP's names, so state_dicts are exchangeable with AllenNLP.
"""

from elmo_fast.modules.bilm import BiLM
from elmo_fast.modules.boundaries import add_sentence_boundary_token_ids, remove_sentence_boundaries
from elmo_fast.modules.char_cnn import CharCNN, Highway
from elmo_fast.modules.character_encoder import CharacterEncoder
from elmo_fast.modules.elmo import Elmo, ElmoTokenEmbedder
from elmo_fast.modules.elmo_lstm import ElmoLstm, JoinedLstm
from elmo_fast.modules.losses import (
    FullSoftmaxLoss,
    HierarchicalSoftmaxLoss,
    NegativeSamplingLoss,
    SampledSoftmaxLoss,
    clip_grad_norm_,
)
from elmo_fast.modules.lstm import LSTM
from elmo_fast.modules.projected_lstm import ProjectedLSTM
from elmo_fast.modules.scalar_mix import ScalarMix
from elmo_fast.modules.word_encoder import WordEncoder

__all__ = [
    "LSTM",
    "BiLM",
    "CharCNN",
    "CharacterEncoder",
    "Elmo",
    "ElmoLstm",
    "ElmoTokenEmbedder",
    "FullSoftmaxLoss",
    "HierarchicalSoftmaxLoss",
    "Highway",
    "JoinedLstm",
    "NegativeSamplingLoss",
    "ProjectedLSTM",
    "SampledSoftmaxLoss",
    "ScalarMix",
    "WordEncoder",
    "add_sentence_boundary_token_ids",
    "clip_grad_norm_",
    "remove_sentence_boundaries",
]
