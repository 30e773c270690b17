"""bilm-tf's forward pass again, in float64 numpy, straight from its files: the judge of the modules.

Shares no code with elmo_fast: neither its reader of weights nor its character ids. Sources: the layout of the published
HDF5 files, TensorFlow's LSTMCell, and "Deep contextualized word representations" (Peters et al., 2018).
"""

import json

import numpy as np

BOS, EOS, BOW, EOW, PAD = 256, 257, 258, 259, 260


class BilmNumpy:
    """A biLM that carries its LSTM state from one batch to the next, row by row, as bilm-tf does."""

    def __init__(self, options_file, weight_file):
        import h5py

        with open(options_file, encoding="utf-8") as file:
            self.options = json.load(file)
        self.weights = {}
        with h5py.File(weight_file, "r") as file:
            file.visititems(lambda name, item: self._keep(name, item))
        self.reset()

    def _keep(self, name, item):
        if hasattr(item, "shape"):
            self.weights[name] = item[...].astype(np.float64)

    def reset(self):
        """Forgets the state: the next batch starts from zeros."""
        self.states = {}

    def embed(self, sentences):
        """Lists of tokens -> one array [layers + 1, tokens, 2D] each, without the sentence boundaries."""
        layers, lengths = self.embed_with_boundaries(sentences)
        return [layers[:, row, 1 : length - 1] for row, length in enumerate(lengths)]

    def embed_with_boundaries(self, sentences):
        """Lists of tokens -> ([layers + 1, B, longest + 2, 2D], lengths), with boundaries, zeros past each length."""
        rows = [[[BOW, BOS, EOW]] + [self.characters(word) for word in s] + [[BOW, EOS, EOW]] for s in sentences]
        lengths = [len(row) for row in rows]
        depth = self.options["lstm"]["projection_dim"]
        tokens = np.zeros((len(rows), max(lengths, default=0), depth))
        for b, row in enumerate(rows):
            for t, characters in enumerate(row):
                tokens[b, t] = self.token_vector(characters)
        return self.run_lstms(tokens, lengths), lengths

    def characters(self, word):
        """Ids of one token before padding: begin-of-word, at most slots - 2 bytes, end-of-word."""
        slots = self.options["char_cnn"]["max_characters_per_token"]
        return [BOW, *word.encode("utf-8", "ignore")[: slots - 2], EOW]

    def token_vector(self, characters):
        """Characters -> embedding, convolutions over all slots, max, activation, highways, projection: [D]."""
        cnn = self.options["char_cnn"]
        w = self.weights
        slots = cnn["max_characters_per_token"]
        padded = characters + [PAD] * (slots - len(characters))
        table = w["char_embed"][-261:]  # a table of 262 rows begins with the zeros of the padding token
        x = table[padded]
        activation = {"relu": lambda v: np.maximum(v, 0), "tanh": np.tanh}[cnn["activation"]]
        parts = []
        for i, (width, number) in enumerate(cnn["filters"]):
            kernel, bias = w[f"CNN/W_cnn_{i}"], w[f"CNN/b_cnn_{i}"]
            windows = np.empty((slots - width + 1, number))
            for start in range(slots - width + 1):
                windows[start] = np.einsum("ke,ken->n", x[start : start + width], kernel[0]) + bias
            parts.append(activation(windows.max(axis=0)))
        y = np.concatenate(parts)
        for k in range(cnn.get("n_highway") or 0):
            name = f"CNN_high_{k}"
            gate = sigmoid(y @ w[f"{name}/W_carry"] + w[f"{name}/b_carry"])
            changed = np.maximum(y @ w[f"{name}/W_transform"] + w[f"{name}/b_transform"], 0)
            y = gate * changed + (1 - gate) * y
        if "CNN_proj/W_proj" in w:
            y = y @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"]
        return y

    def run_lstms(self, tokens, lengths):
        """Token vectors [B, T, D] -> [layers + 1, B, T, 2D]; the state of rows 0 .. B-1 is read and replaced."""
        steps = tokens.shape[1]
        live = np.arange(steps)[None, :] < np.array(lengths, dtype=int)[:, None]
        tokens = tokens * live[:, :, None]
        layers = [np.concatenate([tokens, tokens], axis=-1)]
        below = [tokens, tokens]
        for layer in range(self.options["lstm"].get("n_layers", 1)):
            below = [self._run_direction(d, layer, below[d], lengths) for d in (0, 1)]
            layers.append(np.concatenate(below, axis=-1))
        return np.stack(layers)

    def _run_direction(self, direction, layer, inputs, lengths):
        batch, steps, _ = inputs.shape
        residual = layer > 0 and bool(self.options["lstm"].get("use_skip_connections"))
        outputs = None
        for b in range(batch):
            times = range(lengths[b]) if direction == 0 else range(lengths[b] - 1, -1, -1)
            for t in times:
                m = self._step(direction, layer, b, inputs[b, t])
                if outputs is None:
                    outputs = np.zeros((batch, steps, m.size))
                outputs[b, t] = m + inputs[b, t] if residual else m
        return outputs

    def _step(self, direction, layer, row, x):
        """One cell step of one row: TensorFlow's LSTMCell, whose forget bias of 1 is not in the file."""
        w, lstm = self.weights, self.options["lstm"]
        name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        projection = w.get(f"{name}/W_P_0")
        cells = w[f"{name}/B"].size // 4
        width = cells if projection is None else projection.shape[1]
        c, m = self.states.get((direction, layer, row), (np.zeros(cells), np.zeros(width)))
        i, j, f, o = np.split(np.concatenate([x, m]) @ w[f"{name}/W_0"] + w[f"{name}/B"], 4)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
        c = clip(c, lstm.get("cell_clip"))
        m = sigmoid(o) * np.tanh(c)
        if projection is not None:  # TensorFlow clips the output only where it is projected
            m = clip(m @ projection, lstm.get("proj_clip"))
        self.states[direction, layer, row] = (c, m)
        return m


def clip(values, bound):
    return values if bound is None else np.clip(values, -bound, bound)


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))
