"""Published models by name, from a server of this machine that answers as AllenNLP's does, or as it should not."""

import contextlib
import errno
import functools
import http.server
import threading

import pytest
import torch

from elmo_fast import Elmo, ElmoEmbedder
from elmo_fast.checkpoints import PUBLISHED, cached_folder, model_files, named_models, published_folder
from elmo_fast.cli.main import main
from elmo_fast.errors import CheckpointError
from tests.support.weights import make_weights

SMALL = PUBLISHED["small"]


class Server(http.server.SimpleHTTPRequestHandler):
    """Serve a folder; `lacks` leaves out the last bytes of every file of that name, though it announces them."""

    lacks = ""

    def log_message(self, *_):
        pass

    def copyfile(self, source, output):
        content = source.read()
        output.write(content[:-1000] if self.lacks and self.path.endswith(self.lacks) else content)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """The folder with the files of "small" on the server, whose weights are small and random."""
    place = tmp_path / "server" / SMALL.folder
    place.mkdir(parents=True)
    options, weights = make_weights(tmp_path / "made")
    options.rename(place / SMALL.options)
    weights.rename(place / SMALL.weights)
    handler = functools.partial(Server, directory=tmp_path / "server")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(named_models, "BASE", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "cache"))
        yield place
        server.shutdown()
        thread.join()


def test_a_name_is_downloaded_once_and_then_cached(served, capsys):
    """By from_pretrained, --model and `download`; the list shows which are."""
    assert main(["models"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:2] == ["small", "about"]
    first = ElmoEmbedder.from_pretrained("small").embed_sentence(["I", "like", "Berlin"])
    (served / SMALL.weights).unlink()
    folder = cached_folder("small")
    assert sorted(file.name for file in folder.iterdir()) == [SMALL.options, SMALL.weights, "manifest.json"]
    assert [each.name for each in folder.parent.iterdir()] == ["small"]
    assert main(["download", "small"]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    assert (ElmoEmbedder.from_pretrained("small").embed_sentence(["I", "like", "Berlin"]) == first).all()
    assert Elmo.from_pretrained("small").get_output_dim() == first.shape[-1]
    assert main(["models"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[3] == str(folder)


def truncated(served, monkeypatch):
    monkeypatch.setattr(Server, "lacks", "_weights.hdf5")


def absent(served, monkeypatch):
    (served / SMALL.options).unlink()


def another_models(served, monkeypatch):
    text = (served / SMALL.options).read_text()
    (served / SMALL.options).write_text(text.replace('"n_layers": 2', '"n_layers": 3'))


def disk_is_full(served, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("urllib.request.urlopen", fail)


def sends_too_much(served, monkeypatch):
    """200 MB as the options, in an answer that does not say so."""

    def handle(self):
        self.rfile.readline()
        self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                self.wfile.write(b" " * 1_000_000)

    monkeypatch.setattr(Server, "handle", handle)


def is_silent(served, monkeypatch):
    """A server that takes the request and never answers."""
    monkeypatch.setattr(Server, "handle", lambda self: threading.Event().wait(2))
    monkeypatch.setattr(named_models, "_TIMEOUT", 0.2)


@pytest.mark.parametrize(
    ("happens", "message"),
    [
        (
            truncated,
            r"small: the download is not the published model, or damaged \(elmo_\S+_weights.hdf5: .*truncated.*; try",
        ),
        (
            absent,
            r"small: http://\S+_options.json cannot be downloaded \(HTTP Error 404: File not found\); if you have the",
        ),
        (is_silent, r"small: http://\S+ cannot be downloaded \(.*timed out.*\); if you have the files"),
        (
            another_models,
            r"small: the download is not the published model, or damaged \(elmo_\S+: .*RNN_0/.*\); try again",
        ),
        (
            sends_too_much,
            r"small: http://\S+_options.json cannot .* \(it sends 6[45].\d MiB, more than 64.0 MiB\)",
        ),
        (
            disk_is_full,
            r"small: cannot be written to \S+ \(No space left on device.*\); it takes 51.9 MiB; TORCH_HOME moves",
        ),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_leaves_nothing(served, tmp_path, monkeypatch, happens, message):
    happens(served, monkeypatch)
    with pytest.raises(CheckpointError, match=f"^{message}") as caught:
        published_folder("small")
    assert "\n" not in str(caught.value)
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]


def test_every_address_is_of_a_pair_that_is_read_together(tmp_path):
    """The options and the weights of each name are taken for one model by the reader of folders."""
    for name, model in PUBLISHED.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / model.options).touch()
        (folder / model.weights).touch()
        assert [file.name for file in model_files(folder)] == [model.options, model.weights]
