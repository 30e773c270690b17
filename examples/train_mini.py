"""Train the model that comes with the package again, and write it as the package has it.

    python examples/train_mini.py 'books/train-*.txt' books/heldout.txt elmo_fast/models/mini --run mini-run

The text is English prose, one sentence per line, tokens separated by spaces. A run that was stopped is resumed.
"""

import argparse

from elmo_fast.checkpoints import save_folder
from elmo_fast.cli.main import main as elmo_fast
from elmo_fast.modules import BiLM


def main() -> int:
    """Pretrain, then write the biLM without its softmax, in 8 bits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_prefix", help="text to train on: a file or a glob")
    parser.add_argument("heldout_prefix", help="text to measure the perplexity on")
    parser.add_argument("folder", help="folder to write")
    parser.add_argument("--run", default="mini-run", help="folder of the run")
    parser.add_argument("--precision", default="float32", help="as of `elmo-fast pretrain`")
    arguments, more = parser.parse_known_args()
    texts = ["--train_prefix", arguments.train_prefix, "--heldout_prefix", arguments.heldout_prefix]
    words = [
        "pretrain",
        "--config",
        "mini",
        *texts,
        "--save_dir",
        arguments.run,
        "--precision",
        arguments.precision,
        *more,
    ]
    if status := elmo_fast(words):
        return status
    bilm = BiLM(arguments.run)
    save_folder(arguments.folder, bilm.checkpoint_state(), bilm.options, precision="int8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
