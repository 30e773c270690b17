"""`elmo-fast models`: the models with a name, their sizes, and which are downloaded."""

from typing import Any

from elmo_fast.cli import _common
from elmo_fast.memory import size


def build_parser() -> Any:
    return _common.new_parser(
        "models",
        "Lists the models that have a name, which every command takes as --model and `from_pretrained` as its "
        "argument: the one that comes with elmo_fast, and AllenNLP's published ones, downloaded on first use.",
        shared=(),
    )


def run(arguments: Any) -> int:
    from elmo_fast.checkpoints import PUBLISHED, bundled_models, cached_folder, named_folder

    rows = [("name", "size", "where", "trained on")]
    for name in bundled_models():
        folder = named_folder(name)
        rows.append((name, _size_of(folder), "comes with elmo_fast", "English prose"))
    for name, model in PUBLISHED.items():
        folder = cached_folder(name)
        cached = all((folder / file).is_file() for file in (model.options, model.weights))
        told = "unknown" if model.millions is None else f"about {size(4e6 * model.millions)}"
        rows.append(
            (name, _size_of(folder) if cached else told, str(folder) if cached else "not downloaded", model.text)
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _size_of(folder: Any) -> str:
    return size(sum(file.stat().st_size for file in folder.iterdir()))
