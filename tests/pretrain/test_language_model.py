"""The network that is pretrained, as a folder that others can use."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.language_model import LanguageModel, options_of
from elmo_fast.text import Vocabulary
from tests.pretrain.toy import toy_config


def test_a_language_model_is_saved_and_comes_back_with_its_vocabulary(tmp_path):
    """Bit by bit, from its folder or from a run's newest checkpoint; vocab.txt lies beside it."""
    model = LanguageModel(options_of(toy_config().model, 7))
    torch.nn.init.normal_(model.softmax_bias)
    words = Vocabulary(["<S>", "</S>", "<UNK>", "the", "cat", "sat", "."])
    folder = tmp_path / "run" / "checkpoints" / "step-2"
    model.save_pretrained(folder, words)
    assert Vocabulary.read(folder / "vocab.txt").words == words.words
    for place in (folder, tmp_path / "run"):
        again = LanguageModel.from_pretrained(place, precision="bfloat16")
        assert again.precision == "bfloat16"
        assert again.options == model.options
        state = again.checkpoint_state()
        assert all(torch.equal(state[name], tensor) for name, tensor in model.checkpoint_state().items())
    with pytest.raises(ElmoFastError, match="vocabulary must have the 7 words of the softmax; got 3"):
        model.save_pretrained(tmp_path / "other", Vocabulary(words.words[:3]))
    assert not (tmp_path / "other").exists()
    model.save_pretrained(tmp_path / "other")
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == [
        "config.json",
        "manifest.json",
        "model.safetensors",
    ]
