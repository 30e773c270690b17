"""Constructors of all public modules: what they refuse, what repr and help say of them."""

import inspect
import re

import pytest
import torch

import elmo_fast
from elmo_fast import (
    LSTM,
    BiLM,
    CharCNN,
    Elmo,
    ElmoTokenEmbedder,
    FullSoftmaxLoss,
    ProjectedLSTM,
    SampledSoftmaxLoss,
    ScalarMix,
)
from elmo_fast.checkpoints import ElmoOptions
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.elmo_lstm import ElmoLstm
from elmo_fast.tasks.crf import CRF

CLIPS = {"cell_clip": 3, "proj_clip": 3}
OPTIONS = ElmoOptions.from_dict(
    {
        "char_cnn": {
            "embedding": {"dim": 4},
            "filters": [[1, 4]],
            "n_highway": 1,
            "n_characters": 262,
            "max_characters_per_token": 50,
            "activation": "relu",
        },
        "lstm": {"dim": 8, "projection_dim": 4, "n_layers": 1, "use_skip_connections": True} | CLIPS,
    }
)
KINDS = {kind for name in elmo_fast.__all__ if inspect.isclass(kind := getattr(elmo_fast, name))}


def test_repr_shows_the_settings():
    """What a constructor takes and the module keeps, after the children's own."""
    for module, expected in (
        (ElmoLstm(3, 4, 5, 1, memory_cell_clip_value=3.0),
            "input_size=3, hidden_size=4, cell_size=5, num_layers=1, requires_grad=False, memory_cell_clip_value=3.0, "
            "state_projection_clip_value=None, stateful=True, use_skip_connections=True, precision='float32', "
            "backend='auto'"),
        (LSTM(3, 4, num_layers=2, precision="bfloat16"), "3, 4, num_layers=2, precision='bfloat16'"),
        (Elmo(OPTIONS, None, 1),
            "num_output_representations=1, do_layer_norm=False, dropout=0.5, keep_sentence_boundaries=False, "
            "statistics='allennlp'"),
        (SampledSoftmaxLoss(5, 4, 2, True),
            "num_words=5, embedding_dim=4, num_samples=2, sparse=True, semantics='allennlp', reduction='sum', "
            "ignore_index=-100, precision='float32', backend='auto'"),
    ):  # fmt: skip
        assert module.extra_repr() == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ProjectedLSTM(3, 0, 5), "hidden_size must be 1 or more; got 0"),
        (lambda: ProjectedLSTM(3, 4, 5.0), "cell_size must be a whole number, 1 or more; got 5.0"),
        (lambda: ElmoLstm(3, 4, 5, 1, memory_cell_clip_value=-1), "memory_cell_clip_value must be a number > 0"),
        (lambda: ElmoLstm(3, 4, 5, 0), "num_layers must be 1 or more; got 0"),
        (lambda: ScalarMix(0), "mixture_size must be 1 or more; got 0"),
        (lambda: FullSoftmaxLoss(0, 4), "num_words must be 1 or more; got 0"),
        (lambda: CharCNN((), 4), "filters must be 1 or more; got 0"),
        (lambda: CharCNN(activation="gelu"), "activation must be one of relu, tanh"),
        (lambda: ElmoTokenEmbedder(OPTIONS, None, projection_dim=-3), "projection_dim must be 1 or more; got -3"),
        (lambda: BiLM({"lstm": {}}, None), r"got dict .*write ElmoOptions.from_dict\(...\)"),
    ],
)  # fmt: skip
def test_sizes_clips_and_options_are_checked_when_a_module_is_made(make, message):
    with pytest.raises(ElmoFastError, match=message):
        make()


@pytest.mark.parametrize("state", [torch.zeros(1, 2, 4), (torch.zeros(1, 2, 4),) * 3, torch.zeros(1, 2, 4).numpy()])
def test_a_state_that_is_no_pair_is_refused(state):
    with pytest.raises(ElmoFastError, match=re.escape("state must be a pair (h [R, B, D], c [R, B, H]), or None; got")):
        ProjectedLSTM(3, 4, 5)(torch.randn(2, 3, 3), None, state)


SCORES, TAGS, LENGTHS = torch.randn(2, 4, 3), torch.tensor([[0, 1, 2, 0], [1, 1, 0, 0]]), torch.tensor([4, 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SCORES, TAGS, [4, 2]), "CRF: lengths must be a tensor; got list"),
        ((SCORES, TAGS, torch.tensor([4, 2, 1])), "CRF: lengths must have shape [B=2]"),
        ((SCORES[..., :2], TAGS, LENGTHS), "CRF: scores must have shape [B, T, K=3]"),
        ((SCORES, TAGS[:, :3], LENGTHS), "CRF: labels must have shape [B=2, T=4]"),
        ((SCORES, torch.where(TAGS == 1, -100, TAGS), LENGTHS),
            "CRF: labels must lie in 0..K-1=2 within each length; got values from -100 to 2"),
        ((SCORES, TAGS.float(), LENGTHS), "CRF: labels must be int64"),
        ((SCORES, TAGS, torch.tensor([5, 0])), "lengths must lie in 1..T=4; got 0 to 5"),
    ],
)  # fmt: skip
def test_arguments_of_a_crf_are_checked(arguments, message):
    with pytest.raises(ElmoFastError, match=re.escape(message)):
        CRF(3).log_likelihood(*arguments)


def test_labels_past_a_length_may_be_anything():
    crf, masked = CRF(3), torch.where(torch.arange(4) < LENGTHS[:, None], TAGS, -100)
    assert torch.equal(crf.log_likelihood(SCORES, masked, LENGTHS), crf.log_likelihood(SCORES, TAGS, LENGTHS))
