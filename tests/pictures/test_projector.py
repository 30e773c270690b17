"""Files for the projector, as TensorBoard itself reads them."""

import numpy as np
import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures import write_projector

WORDS = ["left", "Résumé", 'quo"te', "日本", "left"]


def numbers():
    matrix = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    matrix[0, :3] = [np.float32(1e-40), np.finfo(np.float32).max, -0.1]
    return matrix


def served(folder):
    """(configuration, tensor [N, D], metadata text) from TensorBoard's projector plugin over HTTP, as its page asks."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: its reader cannot be asked")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorBoard's own
        from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
        from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
        from tensorboard.plugins.base_plugin import TBContext
        from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
    from werkzeug.test import Client

    multiplexer = EventMultiplexer()
    provider = MultiplexerDataProvider(multiplexer, str(folder))
    plugin = ProjectorPlugin(TBContext(logdir=str(folder), data_provider=provider, multiplexer=multiplexer))
    apps = plugin.get_plugin_apps()

    def get(route, query=""):
        answer = Client(apps[route]).get(f"{route}?run=.&name=words{query}")
        assert answer.status_code == 200, answer.data
        return answer

    config = get("/info").get_json()["embeddings"][0]
    tensor = np.frombuffer(get("/tensor").data, np.float32).reshape(config["tensorShape"])
    return config, tensor, get("/metadata").data.decode()


def test_tensorboard_reads_back_every_bit(tmp_path):
    """Vectors, labels and their shape, from the running plugin."""
    matrix = numbers()
    assert write_projector(WORDS, matrix, tmp_path / "new" / "logs") == tmp_path / "new" / "logs"
    config, tensor, metadata = served(tmp_path / "new" / "logs")
    assert config["tensorShape"] == [5, 7]
    assert config["tensorName"] == "words"
    np.testing.assert_array_equal(tensor, matrix)
    assert metadata.split("\n") == [*WORDS, ""]


def test_columns_have_a_header(tmp_path):
    columns = {"line": list("12345"), "sentence": [f"a {word} b" for word in WORDS]}
    write_projector(WORDS, numbers(), tmp_path, columns)
    rows = [row.split("\t") for row in served(tmp_path)[2].splitlines()]
    assert rows[0] == ["word", "line", "sentence"]
    assert rows[1:] == [[word, str(i), f"a {word} b"] for i, word in enumerate(WORDS, start=1)]


@pytest.mark.parametrize(
    ("words", "matrix", "columns", "message"),
    [
        (
            WORDS[:4],
            numbers(),
            None,
            r"matrix must be \[4, D\], a row per word, one or more, of finite numbers; got \[5, 7\]",
        ),
        ([], np.zeros((0, 3)), None, "one or more"),
        (WORDS, numbers() * np.inf, None, "finite: False"),
        ([*WORDS[:4], "a\tb"], numbers(), None, "row 5 must be a text without tabs and line breaks, not empty; got"),
        ([*WORDS[:4], ""], numbers(), None, "not empty; got ''"),
        (WORDS, numbers(), {"line": ["1"]}, "column 'line' must have 5 texts, one per word; got 1"),
    ],
)
def test_what_the_files_cannot_hold_is_refused_before_anything_is_written(tmp_path, words, matrix, columns, message):
    with np.errstate(invalid="ignore"), pytest.raises(ElmoFastError, match=message):
        write_projector(words, matrix, tmp_path / "logs", columns)
    assert list(tmp_path.iterdir()) == []
