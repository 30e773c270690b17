"""A small biLM in files of bilm-tf's."""

import pytest

from elmo_fast.tasks import load_bilm
from tests.support.weights import make_weights


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_weights(tmp_path_factory.mktemp("bilm"))


@pytest.fixture
def bilm(files):
    return load_bilm(files[0].parent)
