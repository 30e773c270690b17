"""`elmo-fast upload`: uploads a model and a page about it to the Hugging Face hub."""

import pathlib
import re
from typing import Any

from elmo_fast.cli import _common
from elmo_fast.errors import ElmoFastError


def build_parser() -> Any:
    parser = _common.new_parser(
        "upload",
        "Uploads a model to the Hugging Face hub: its weights, its options, vocab.txt and a page about it (README.md "
        "of FOLDER or, if there is none, one generated from the options and the run's metrics.jsonl). Nothing else is "
        "uploaded. Log in first: `hf auth login`, or HF_TOKEN in the environment.",
        shared=(),
    )
    parser.add_argument("folder", type=str, help="folder of a model; of an unfinished run: its newest checkpoint")
    parser.add_argument("repo", type=str, help="user/name on the hub; created if it does not exist")
    parser.shared("prefix")
    parser.flag("private", "make the repository private; refused if it exists and is public")
    parser.option("licence", str, "license of the weights, as the hub spells it, such as mit")
    return parser


def run(arguments: Any) -> int:
    """Read the whole model, so that nothing damaged is uploaded; then upload it and print its address."""
    from elmo_fast.checkpoints import file_beside, load_checkpoint, model_files, model_folder, offer

    _common.set_up_logging(arguments)
    if arguments.licence is not None and not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", arguments.licence):
        raise ElmoFastError(f"--licence must be one word such as mit or apache-2.0; got {arguments.licence!r}")
    folder = model_folder(arguments.folder)
    state, options = load_checkpoint(folder, prefix=arguments.prefix)
    files = [*model_files(folder), *filter(None, [file_beside(folder)])]
    page = page_of(arguments, folder, state, options)
    address = offer(arguments.repo, files, page, private=arguments.private)
    print(f"{address}: {', '.join(file.name for file in files)}, README.md")
    return 0


def page_of(arguments: Any, folder: pathlib.Path, state: Any, options: Any) -> str:
    """README.md of the folder, or a new one."""
    from elmo_fast.pretrain.model_card import model_card

    written = pathlib.Path(arguments.folder) / "README.md"
    if written.is_file():
        if arguments.licence is not None:
            raise ElmoFastError(
                f"{written} exists and will be the page; state the license there, and leave out --licence"
            )
        return written.read_text(encoding="utf-8")
    if arguments.licence is None:
        _common.logger().warning("no --licence: the page will not state the license of the weights")
    return model_card(arguments.repo, state, options, metrics_of(folder), arguments.licence)


def metrics_of(folder: pathlib.Path) -> Any:
    """Return the metrics of the run that left the model, up to the model's step; None if it is not from a run."""
    from elmo_fast.checkpoints import file_beside, read_config
    from elmo_fast.pretrain.metrics import read_metrics
    from elmo_fast.progress import METRICS_FILE

    file = file_beside(folder, [METRICS_FILE])
    step = None if file is None else read_config(folder).get("extra", {}).get("pretraining_step")
    return None if file is None or step is None else read_metrics(file.parent).until(step)
