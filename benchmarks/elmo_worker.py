"""One side of the case `embed` in a process of its own, so that each library runs in the environment that it needs.

`python elmo_worker.py LIBRARY OPTIONS` answers a JSON request per line on stdin; `Worker` starts it. LIBRARY is
elmo_fast or allennlp, which offer the same class; this file imports nothing of benchmarks/. OPTIONS: "options_file",
"weight_file", "text" (sentences as JSON lines), "keywords" (of Elmo). Requests:
{"do": "about"} -> {"version", "backends": which backend serves each op};
{"do": "time", "first": sentence, "size": sentences} -> {};
{"do": "save", "first", "size", "path", "reset"} -> {}: writes the activations, (layers, B, T, 2D) float32, of a batch
that starts from zero states ("reset") or from those that the batch before it left.
"""

import importlib.abc
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile
import types
import warnings
from typing import Any


class Worker:
    """A child that runs `python SCRIPT ARGUMENTS` and answers one JSON object per line with one."""

    def __init__(self, python, arguments, script=__file__, **environment):
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        self._child: Any = subprocess.Popen(
            [python, str(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **environment},
        )  # fmt: skip

    def ask(self, **request):
        """Return the answer to `request`; RuntimeError with the child's last words if it ended instead."""
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self._child.wait()
            self._errors.seek(0)
            last = self._errors.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{self._child.args} ended with status {status}:\n{last}")
        return json.loads(line)

    def close(self):
        """End the child: closing its pipes ends its loop."""
        self._child.__exit__(None, None, None)
        self._errors.close()


class Absent(types.ModuleType):
    """A module of which any name is an empty class: enough for an import that is never used."""

    __path__ = ()  # type: ignore[assignment]

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class AbsentFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what AllenNLP 2.10.1 imports at its top and ELMo never calls, and what has left those packages since."""

    names = ("checklist", "wandb", "fairscale", "torchvision", "_jsonnet")

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        """Nothing to run."""


def import_allennlp():
    """Return AllenNLP's Elmo, batch_to_ids and version, with a current torch and huggingface_hub."""
    import huggingface_hub

    for gone in ("HfFolder", "Repository"):
        if not hasattr(huggingface_hub, gone):
            setattr(huggingface_hub, gone, type(gone, (), {}))
    sys.meta_path.append(AbsentFinder())
    from allennlp.modules.elmo import Elmo, batch_to_ids
    from allennlp.version import VERSION

    return Elmo, batch_to_ids, VERSION


def backends(precision="float32", **_):
    """Return which backend serves each op of elmo_fast."""
    from elmo_fast import ops

    precisions = dict.fromkeys(("char_cnn", "highway", "projected_lstm"), precision) | {"scalar_mix": "float32"}
    return {op: ops.explain(op, "cpu", precision=each).backend for op, each in precisions.items()}


def main():
    library, options = sys.argv[1], json.loads(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to stderr, not among the answers
    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(1)
    if library == "allennlp":
        Elmo, batch_to_ids, version = import_allennlp()
    else:
        import elmo_fast

        Elmo, batch_to_ids, version = elmo_fast.Elmo, elmo_fast.batch_to_ids, elmo_fast.__version__
    with open(options["text"], encoding="utf-8") as file:
        sentences = [json.loads(line) for line in file]
    model = Elmo(options["options_file"], options["weight_file"], 1, dropout=0.0, **options["keywords"]).eval()
    for line in sys.stdin:
        request, answer = json.loads(line), {}
        if request["do"] == "about":
            answer = {"version": version}
            if library == "elmo_fast":
                answer["backends"] = backends(**options["keywords"])
        else:
            ids = sentences[request["first"] : request["first"] + request["size"]]
            if request.get("reset"):
                (model._elmo_lstm._elmo_lstm if library == "allennlp" else model).reset_states()
            with torch.inference_mode():
                if request["do"] == "time":
                    model(batch_to_ids(ids))
                else:
                    layers = model._elmo_lstm(batch_to_ids(ids))["activations"]
                    torch.stack([layer.float() for layer in layers]).numpy().tofile(request["path"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
