"""One side of the `embed` case: python elmo_worker.py LIBRARY THREADS OPTIONS, then one JSON request per line on stdin.

LIBRARY is elmo_fast or allennlp, each run by the interpreter of its own environment: this file imports nothing of
benchmarks/, and both libraries offer the same class.
OPTIONS: {"options_file", "weight_file", "text" (sentences as JSON lines), "keywords" (of Elmo)}.
Requests: {"do": "time", "first": sentence, "size": sentences} -> {"seconds", "tokens"};
{"do": "save", "first", "size", "path", "reset"} -> writes the activations, (layers, B, T, 2D) float32, of a batch
that starts from zero states ("reset") or from those that the batch before it left;
{"do": "about"} -> {"version", "backends": which backend serves each op}.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
import time
import types
import warnings

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # whatever a library prints goes to stderr, not among the answers


class Absent(types.ModuleType):
    """A module of which any name is an empty class: enough for an import that is never used."""

    __path__ = ()

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
    """AllenNLP's Elmo and batch_to_ids beside a current torch."""
    import huggingface_hub

    for gone in ("HfFolder", "Repository"):
        if not hasattr(huggingface_hub, gone):
            setattr(huggingface_hub, gone, type(gone, (), {}))
    sys.meta_path.append(AbsentFinder())
    from allennlp.modules.elmo import Elmo, batch_to_ids
    from allennlp.version import VERSION

    return Elmo, batch_to_ids, VERSION


def import_elmo_fast():
    """The same three of this project."""
    from elmo_fast import Elmo, __version__, batch_to_ids

    return Elmo, batch_to_ids, __version__


def backends(keywords):
    """Which backend serves each op of ours at the precision that was asked for."""
    import torch

    from elmo_fast import ops

    here, precision = (torch.device("cpu"), torch.float32), keywords.get("precision", "float32")
    found = {op: ops.explain(op, *here, precision).backend for op in ("char_cnn", "highway", "projected_lstm")}
    return found | {"scalar_mix": ops.explain("scalar_mix", *here).backend}


def main():
    library, threads, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(threads)
    Elmo, batch_to_ids, version = import_allennlp() if library == "allennlp" else import_elmo_fast()
    with open(options["text"], encoding="utf-8") as file:
        sentences = [json.loads(line) for line in file]
    model = Elmo(options["options_file"], options["weight_file"], 1, dropout=0.0, **options["keywords"]).eval()
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "about":
            answer = {"version": version, "backends": backends(options["keywords"]) if library == "elmo_fast" else {}}
        else:
            if request.get("reset"):
                stack = model._elmo_lstm._elmo_lstm if library == "allennlp" else model
                stack.reset_states()
            batch = sentences[request["first"] : request["first"] + request["size"]]
            with torch.inference_mode():
                start = time.perf_counter()
                if request["do"] == "time":
                    model(batch_to_ids(batch))
                else:
                    layers = model._elmo_lstm(batch_to_ids(batch))["activations"]
                    torch.stack([layer.float() for layer in layers]).numpy().tofile(request["path"])
                answer = {"seconds": time.perf_counter() - start, "tokens": sum(map(len, batch))}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
