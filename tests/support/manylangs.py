"""Tiny models in ELMoForManyLangs' format with random weights, and what they compute, by the formula in float64."""

import json

import torch
from torch.nn import functional as F

# No order of ids is special: markers stand anywhere.
LETTERS = ["a", "<pad>", "b", "<eos>", "é", "<bow>", "東", "<oov>", "<bos>", "c", "<eow>", "\u3000", "d"]
WORDS = ["<oov>", "abc", "<bos>", "東", "abcdefgh", "<pad>", "<eos>", "a"]
FILTERS = [[1, 3], [2, 4], [5, 6]]
DIM, CELLS, SLOTS = 6, 10, 10
# A word of a lexicon, one that is cut to another of it, letters that are unknown, the markers' own names, nothing.
SENTENCES = [["abc", "abcdefghijk", "xé東", "a"], ["<bos>", "", "東\u3000"], [], ["b"] * 7]


def write_model(folder, encoder="elmo", embedder="cnn", word_dim=3, char_dim=4, legacy=False, **changes):
    """Writes the files; `changes` are values of both parts of the configuration. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"name": embedder, "word_dim": word_dim, "char_dim": char_dim, "activation": "relu", "filters": FILTERS}
    values |= {"n_highway": 2, "max_characters_per_token": SLOTS}
    lstm = {"name": encoder, "dim": CELLS, "projection_dim": DIM, "cell_clip": 0.4, "proj_clip": 0.3, "n_layers": 2}
    parts = {"encoder": lstm, "token_embedder": values}
    for part in parts.values():
        part |= {name: value for name, value in changes.items() if name in part}
    parts |= {"classifier": {"name": "sampled_softmax", "n_samples": 4}, "dropout": 0.1}
    (folder / "config.json").write_text(json.dumps({"seed": 1, "config_path": "/elsewhere/cnn.json"}))
    (folder / "cnn.json").write_text(json.dumps(parts))
    for name, entries in (("char.dic", LETTERS), ("word.dic", WORDS)):
        lines = [f"{entry}\t{place}\n" for place, entry in enumerate(entries)]
        (folder / name).write_text("".join(reversed(lines)), encoding="utf-8")
    generator = torch.Generator().manual_seed(5)
    for file, shapes in (("token_embedder.pkl", _embedder_shapes(values)), ("encoder.pkl", _encoder_shapes(lstm))):
        tensors = {name: torch.randn(shape, generator=generator) * 0.6 for name, shape in shapes.items()}
        torch.save(tensors, folder / file, _use_new_zipfile_serialization=not legacy)
    return folder


def _embedder_shapes(values):
    shapes, features = {}, values["word_dim"]
    if values["word_dim"]:
        shapes["word_emb_layer.embedding.weight"] = (len(WORDS), values["word_dim"])
    if values["char_dim"]:
        shapes["char_emb_layer.embedding.weight"] = (len(LETTERS), values["char_dim"])
        for i, (width, number) in enumerate(values["filters"]):
            shapes |= {f"convolutions.{i}.weight": (number, values["char_dim"], width)}
            shapes |= {f"convolutions.{i}.bias": (number,)}
        filters = sum(number for _, number in values["filters"])
        for i in range(values["n_highway"]):
            shapes |= {f"highways._layers.{i}.weight": (2 * filters, filters)}
            shapes |= {f"highways._layers.{i}.bias": (2 * filters,)}
        features += filters
    return shapes | {"projection.weight": (DIM, features), "projection.bias": (DIM,)}


def _encoder_shapes(lstm):
    if lstm["name"] == "lstm":
        module = torch.nn.LSTM(DIM, CELLS, lstm["n_layers"], bidirectional=True)
        shapes = {f"encoder.{name}": tensor.shape for name, tensor in module.named_parameters()}
        return shapes | {"projection.weight": (DIM, CELLS), "projection.bias": (DIM,)}
    shapes = {}
    for layer in range(lstm["n_layers"]):
        for name in (f"forward_layer_{layer}", f"backward_layer_{layer}"):
            shapes |= {f"{name}.input_linearity.weight": (4 * CELLS, DIM), f"{name}.state_linearity.bias": (4 * CELLS,)}
            shapes |= {f"{name}.state_linearity.weight": (4 * CELLS, DIM)}
            shapes |= {f"{name}.state_projection.weight": (DIM, CELLS)}
    return shapes


def formula(folder, sentences):
    """Return the model's result per sentence alone, [layers, tokens, 2D] float64; encoder "lstm": one layer."""
    parts = json.loads((folder / "cnn.json").read_text())
    embedder, encoder = (
        {name: tensor.double() for name, tensor in torch.load(folder / file, weights_only=True).items()}
        for file in ("token_embedder.pkl", "encoder.pkl")
    )
    run = _joined if parts["encoder"]["name"] == "lstm" else _separate
    actual = []
    for sentence in sentences:
        words = torch.stack([_word(word, parts["token_embedder"], embedder) for word in ["<bos>", *sentence, "<eos>"]])
        actual.append(run(words, parts["encoder"], encoder)[:, 1:-1])
    return actual


def _word(word, values, weights):
    cut = word[: values["max_characters_per_token"] - 2] if values["name"] == "cnn" else word
    features = []
    if values["word_dim"]:
        place = WORDS.index(cut if cut in WORDS else "<oov>")
        features.append(weights["word_emb_layer.embedding.weight"][place])
    if values["char_dim"]:
        letters = [cut] if cut in ("<bos>", "<eos>") else [c if c in LETTERS else "<oov>" for c in cut]
        spelled = ["<eow>", *letters, "<bow>"]  # the two under each other's names
        spelled += ["<pad>"] * (values["max_characters_per_token"] - len(spelled))
        x = weights["char_emb_layer.embedding.weight"][[LETTERS.index(c) for c in spelled]].T
        pooled = [
            F.conv1d(x, weights[f"convolutions.{i}.weight"], weights[f"convolutions.{i}.bias"]).amax(1)
            for i in range(len(values["filters"]))
        ]
        x = getattr(torch, values["activation"])(torch.cat(pooled))
        for i in range(values["n_highway"]):
            y, gate = F.linear(x, *(weights[f"highways._layers.{i}.{part}"] for part in ("weight", "bias"))).chunk(2)
            x = gate.sigmoid() * x + (1 - gate.sigmoid()) * y.relu()
        features.append(x)
    return F.linear(torch.cat(features), weights["projection.weight"], weights["projection.bias"])


def _separate(words, values, weights):
    both, layers = [words, words.flip(0)], [torch.cat([words, words], 1)]
    for layer in range(values["n_layers"]):
        for i, way in enumerate(("forward", "backward")):
            output = _cells(both[i], f"{way}_layer_{layer}.", values, weights)
            both[i] = output + both[i] if layer else output
        layers.append(torch.cat([both[0], both[1].flip(0)], 1))
    return torch.stack(layers)


def _cells(inputs, name, values, weights):
    w = {part: weights[f"{name}{part}"] for part in ("input_linearity.weight", "state_linearity.weight")}
    h, c, outputs = torch.zeros(DIM).double(), torch.zeros(CELLS).double(), []
    for x in inputs:
        gates = w["input_linearity.weight"] @ x + w["state_linearity.weight"] @ h
        i, f, g, o = (gates + weights[f"{name}state_linearity.bias"]).chunk(4)
        c = _clipped(i.sigmoid() * g.tanh() + f.sigmoid() * c, values["cell_clip"])
        h = _clipped(weights[f"{name}state_projection.weight"] @ (o.sigmoid() * c.tanh()), values["proj_clip"])
        outputs.append(h)
    return torch.stack(outputs)


def _clipped(x, bound):
    return x.clamp(-bound, bound) if bound else x


def _joined(words, values, weights):
    lstm = torch.nn.LSTM(DIM, CELLS, values["n_layers"], bidirectional=True).double()
    lstm.load_state_dict({n.removeprefix("encoder."): t for n, t in weights.items() if n.startswith("encoder.")})
    hidden = lstm(words)[0].detach().unflatten(1, (2, CELLS))
    return F.linear(hidden, weights["projection.weight"], weights["projection.bias"]).flatten(1)[None]
