"""`elmo-fast upload`: a model to the Hugging Face hub, with a page that tells what it is."""

import pathlib
import re
from typing import Any

from elmo_fast.cli import _common
from elmo_fast.errors import ElmoFastError


def build_parser() -> Any:
    """The options of `elmo-fast upload`."""
    parser = _common.new_parser(
        "upload",
        "Offers a model on the Hugging Face hub: its weights, its options, vocab.txt and a page about it (README.md of "
        "FOLDER or, where there is none, one made of the options and of the run's metrics.jsonl). Nothing else of the "
        "folder is uploaded. Log in first: `hf auth login`, or HF_TOKEN in the environment.",
    )
    parser.add_argument("folder", type=str, help="folder of a model, or of a run (then its newest checkpoint)")
    parser.add_argument("repo", type=str, help="user/name on the hub, made if need be")
    parser.add_argument("--private", action="store_true", help="for your eyes only; refused where the repo is public")
    parser.add_argument("--licence", type=str | None, default=None, help="of the weights, as the hub spells it: mit")
    return parser


def run(arguments: Any) -> int:
    """Reads the model whole, so that nothing damaged goes out, then uploads it; prints its address."""
    from elmo_fast.checkpoints import file_beside, load_checkpoint, model_files, model_folder, offer

    _common.set_up(arguments)
    if arguments.licence is not None and not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", arguments.licence):
        raise ElmoFastError(f"--licence must be one word such as mit or apache-2.0; got {arguments.licence!r}")
    folder = model_folder(arguments.folder)
    state, options = load_checkpoint(folder)
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
            raise ElmoFastError(f"{written} is there and will be the page; state the licence in it, without --licence")
        return written.read_text(encoding="utf-8")
    if arguments.licence is None:
        _common.logger().warning("no --licence: the page will not say under which the weights may be used")
    return model_card(arguments.repo, state, options, metrics_of(folder), arguments.licence)


def metrics_of(folder: pathlib.Path) -> Any:
    """The metrics of the run that left the model, up to the model's step; None where it is not a run's."""
    from elmo_fast.checkpoints import file_beside, read_config
    from elmo_fast.pretrain.log.metrics import read_metrics
    from elmo_fast.pretrain.log.metrics_file import METRICS_FILE

    file = file_beside(folder, METRICS_FILE)
    step = None if file is None else read_config(folder).get("extra", {}).get("pretraining_step")
    return None if file is None or step is None else read_metrics(file.parent).until(step)
