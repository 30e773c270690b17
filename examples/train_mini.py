"""Train the model that comes with the package again, and write it as the package has it.

    python examples/train_mini.py 'books/train-*.txt' books/heldout.txt elmo_fast/models/mini --run mini-run

The text is English prose, one sentence per line, tokens separated by spaces. A run that was stopped is resumed.
"""

import argparse

from elmo_fast.cli.main import main as elmo_fast


def main() -> int:
    """Pretrain; then fit a smaller softmax to the biLM, which stays as it is; write both in 8 bits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_prefix", help="text to train on: a file or a glob")
    parser.add_argument("heldout_prefix", help="text to measure the perplexity on")
    parser.add_argument("folder", help="folder to write")
    parser.add_argument("--run", default="mini-run", help="folder of the run; that of the softmax is RUN-softmax")
    parser.add_argument("--precision", default="float32", help="as of `elmo-fast pretrain`")
    arguments, more = parser.parse_known_args()
    texts = ["--train_prefix", arguments.train_prefix, "--heldout_prefix", arguments.heldout_prefix]
    texts += ["--precision", arguments.precision]
    run, softmax = arguments.run, f"{arguments.run}-softmax"
    alone = (
        "--train_bilm false --loss full_softmax --max_vocab_size 10000 --batch_size 256 --max_steps 1300 --schedule linear"
    )
    return (
        elmo_fast(["pretrain", "--config", "mini", *texts, "--save_dir", run, *more])
        or elmo_fast(
            ["pretrain", "--init_from", run, *alone.split(), "--final_share", "0.1", *texts, "--save_dir", softmax]
        )
        or elmo_fast(
            ["convert", "--model", softmax, "--to", "safetensors", "--precision", "int8", "--out_dir", arguments.folder]
        )
    )


if __name__ == "__main__":
    raise SystemExit(main())
