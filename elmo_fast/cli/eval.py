"""`elmo-fast eval`: perplexity of held-out text under a pretrained model."""

import contextlib
from typing import Any

from elmo_fast.cli import _model
from elmo_fast.cli._common import leave_busy_processors, named, new_parser, set_up
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import write_json

# No text has more rows or steps than this, and the arrays of positions could not hold them.
MOST = 1 << 24


def build_parser() -> Any:
    """The flags of bilm-tf's bin/run_test.py, and the usual ones that name a model."""
    parser = new_parser(
        "eval",
        "Prints the perplexity of held-out text: forward, backward and mean, always over the whole vocabulary.",
    )
    parser.shared(*_model.OPTIONS, "softmax_file", "tokenizer")
    parser.option("save_dir", str, "same as --model")
    parser.alternatives(["model"], ["save_dir"], ["options_file", "weight_file", "softmax_file"])
    parser.option("vocab_file", str, "vocabulary of the model (default: its vocab.txt)")
    parser.option(
        "test_prefix",
        str,
        "text to evaluate on: a file, a glob in quotes, a folder that `elmo-fast prepare` wrote, or - for the standard "
        "input",
    )
    parser.shared("batch_size", default=256, help="number of rows into which the text is cut")
    parser.option("unroll_steps", int, "tokens per row and step", 20)
    parser.output("output", "JSON file to write the figures to")
    parser.output(
        "per_sentence",
        "file to write one row per sentence to, separated by tabs: its line (counted over all files), its number of "
        "words, its losses in nats, and its perplexities",
        metavar="FILE",
    )
    parser.renamed("output_file", "output")
    parser.shared("file_friendly_logging")
    return parser


def _check(arguments: Any) -> None:
    if arguments.test_prefix is None:
        raise ElmoFastError("--test_prefix must name the text to evaluate, as in 'corpus/heldout-*'; got nothing")
    if arguments.model is not None and arguments.save_dir is not None:
        raise ElmoFastError("--model and --save_dir name the same thing; give one of them")
    for name in ("batch_size", "unroll_steps"):
        if not 1 <= (value := getattr(arguments, name)) <= MOST:
            raise ElmoFastError(f"--{name} must be {'1 or more' if value < 1 else f'at most {MOST}'}; got {value}")
    _model.resolve(arguments)


def run(arguments: Any) -> int:
    """Prints the perplexity; writes it as JSON, and that of each sentence as a table, if requested."""
    from elmo_fast.cli._per_sentence import write_table
    from elmo_fast.cli._progress import progress_bar
    from elmo_fast.pretrain.evaluate import evaluate
    from elmo_fast.text import rereadable

    _check(arguments)
    device = set_up(arguments)
    model, vocabulary = _loaded(arguments, device)
    given = arguments.test_prefix
    with rereadable(given) if given == "-" else contextlib.nullcontext(given) as text:
        tokenizer = arguments.tokenizer or model.options.tokenizer
        corpus = _read(text, vocabulary, tokenizer)
        with progress_bar(arguments, corpus.positions) as progress:
            perplexity = evaluate(
                model,
                corpus,
                device=device,
                per_sentence=arguments.per_sentence is not None,
                progress=progress.add,
                **named(arguments, "batch_size", "unroll_steps"),
            )
        unknown = corpus.unknown / corpus.tokens
        print(f"perplexity {perplexity}; {unknown:.1%} of them are outside the vocabulary")
        if perplexity.sentences is not None:
            write_table(arguments.per_sentence, text, corpus, perplexity.sentences)
    if arguments.output is not None:
        write_json(arguments.output, _figures(perplexity, unknown, model.options.trained_by), indent=2)
    return 0


def _loaded(arguments: Any, device: Any) -> tuple[Any, Any]:
    """The language model on its device, and its vocabulary."""
    from elmo_fast.pretrain.checkpoint import find_vocabulary_file
    from elmo_fast.pretrain.language_model import LanguageModel
    from elmo_fast.text import Vocabulary

    state, options = _model.load_state(arguments)
    model = LanguageModel.from_checkpoint(options, state, precision=arguments.precision).to(device)
    if (folder := arguments.save_dir or arguments.model) is not None:
        arguments.vocab_file = arguments.vocab_file or find_vocabulary_file(folder)
    elif arguments.vocab_file is None:
        raise ElmoFastError("--vocab_file must name the vocabulary the model was trained with; got nothing")
    vocabulary = Vocabulary.read(arguments.vocab_file)
    leave_busy_processors(arguments)
    return model, vocabulary


def _read(text: str, vocabulary: Any, tokenizer: Any) -> Any:
    """The corpus of a text, or of a prepared folder."""
    from elmo_fast.corpus import is_prepared, open_corpus, read_corpus

    if not is_prepared(text):
        return read_corpus(text, vocabulary, tokenizer)
    corpus = open_corpus(text)
    if corpus.vocabulary.words != vocabulary.words:
        raise ElmoFastError(f"--test_prefix {text} was prepared with a different vocabulary than the model's")
    return corpus


def _figures(perplexity: Any, unknown: float, loss: str) -> dict[str, Any]:
    """The content of --output."""
    return {
        "perplexity": perplexity.mean,
        "perplexity_forward": perplexity.forward,
        "perplexity_backward": perplexity.backward,
        "loss_forward": perplexity.forward_loss,
        "loss_backward": perplexity.backward_loss,
        "words": perplexity.words,
        "out_of_vocabulary": unknown,
        "trained_by": loss,
        "how": perplexity.how or "softmax over the whole vocabulary",
    }
