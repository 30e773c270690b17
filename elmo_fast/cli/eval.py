"""`elmo-fast eval`: perplexity of held-out text under a pretrained model."""

from typing import Any

from elmo_fast.cli._common import logger, new_parser, set_up
from elmo_fast.cli._model import add_options, check_named
from elmo_fast.errors import ElmoFastError


def build_parser() -> Any:
    """The flags of bilm-tf's bin/run_test.py, and those that name a model everywhere else."""
    parser = new_parser("eval", "Perplexity of held-out text: forward, backward and mean, by the full softmax.")
    add_options(parser, softmax=True)
    parser.add_argument("--save_dir", type=str | None, default=None, help="folder of a run; another name for --model")
    parser.add_argument(
        "--vocab_file", type=str | None, default=None, help="the vocabulary of the training; vocab.txt beside the model"
    )
    parser.add_argument("--test_prefix", type=str | None, default=None, help="glob of the text to be predicted")
    parser.add_argument("--batch_size", type=int, default=256, help="rows, each its own stream of sentences")
    parser.add_argument("--unroll_steps", type=int, default=20, help="words per row at a time")
    parser.add_argument("--output_file", type=str | None, default=None, help="where to write the figures as JSON")
    return parser


def _check(arguments: Any) -> None:
    if arguments.test_prefix is None:
        raise ElmoFastError("--test_prefix must name the text to be predicted, as in 'corpus/heldout-*'; got nothing")
    if arguments.model is not None and arguments.save_dir is not None:
        raise ElmoFastError("--model and --save_dir name the same thing; give one of them")
    if arguments.save_dir is not None:
        arguments.model = arguments.save_dir
    check_named(arguments)
    for name in ("batch_size", "unroll_steps"):
        if getattr(arguments, name) < 1:
            raise ElmoFastError(f"--{name} must be 1 or more; got {getattr(arguments, name)}")


def run(arguments: Any) -> int:
    """Prints the perplexity and, where asked, writes it as JSON."""
    from elmo_fast.pretrain.checkpoint import load_model, newest_model, vocabulary_beside
    from elmo_fast.pretrain.corpus import read_corpus
    from elmo_fast.pretrain.evaluate import evaluate
    from elmo_fast.text import Vocabulary

    _check(arguments)
    device = set_up(arguments)
    folder = None if arguments.model is None else newest_model(arguments.model)
    files = (folder, arguments.options_file, arguments.weight_file, arguments.softmax_file)
    model = load_model(*files, precision=arguments.precision).to(device)
    if folder is not None:
        logger().info(f"model  {folder}")
        arguments.vocab_file = arguments.vocab_file or vocabulary_beside(folder)
    elif arguments.vocab_file is None:
        raise ElmoFastError("--vocab_file must name the vocabulary the model was trained with; got nothing")
    vocabulary = Vocabulary.read(arguments.vocab_file)
    corpus = read_corpus(arguments.test_prefix, vocabulary)
    perplexity = evaluate(
        model, corpus, batch_size=arguments.batch_size, unroll_steps=arguments.unroll_steps, device=device
    )
    unknown = float((corpus.targets(corpus.ids) == corpus.unknown).mean())
    print(f"perplexity {perplexity}; {unknown:.1%} of them are outside the vocabulary")
    if arguments.output_file is not None:
        _write(arguments.output_file, perplexity, unknown)
    return 0


def _write(path: str, perplexity: Any, unknown: float) -> None:
    import json

    from elmo_fast.text import replacing

    figures = {
        "perplexity": perplexity.mean,
        "perplexity_forward": perplexity.forward,
        "perplexity_backward": perplexity.backward,
        "loss_forward": perplexity.forward_loss,
        "loss_backward": perplexity.backward_loss,
        "words": perplexity.words,
        "out_of_vocabulary": unknown,
    }
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
