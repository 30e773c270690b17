"""`elmo-fast eval` and `elmo-fast fill`: what a pretrained language model says of held-out text, and of a sentence."""

import contextlib
import re
from typing import Any

from elmo_fast._io.atomic_file import write_json, writing
from elmo_fast.cli import _common
from elmo_fast.cli._parser import Model, Reading, flag, option
from elmo_fast.errors import ElmoFastError, check_counts, printable
from elmo_fast.op_choices import Tokenizer

# Of the table of sentences; and the largest argument of exp without overflow.
COLUMNS = ("line", "words", "nats_forward", "nats_backward", "perplexity_forward", "perplexity_backward", "perplexity")
MOST_NATS = 700.0


class Predicting(Model):
    """A model with its softmax, which says how likely words are."""

    softmax_file: str | None = None
    tokenizer: Tokenizer | None = None
    save_dir: str | None = None
    """same as --model"""
    vocab_file: str | None = None
    """vocabulary of the model (default: its vocab.txt)"""


class _EvalOptions(Predicting, Reading):
    """Options of `eval`: those of bilm-tf's bin/run_test.py, and the usual ones that name a model."""

    test_prefix: str
    """text to evaluate on: a file (text, or a table: --format_in), a glob in quotes, a folder that `elmo-fast prepare`
    wrote, or - for the standard input"""
    batch_size: int = 256
    """number of rows into which the text is cut"""
    unroll_steps: int = 20
    """tokens per row and step"""
    output: str | None = option(None, writes="file")
    """JSON file to write the figures to; its `words` include the sentence ends"""
    per_sentence: str | None = option(None, writes="file", metavar="FILE")
    """file to write one row per sentence to, separated by tabs: its line (counted over all files), its number of words,
    its losses in nats, and its perplexities"""
    worst: int | None = None
    """print this many lines of the highest perplexity: line (counted over all files), perplexity, words"""


def run_eval(options: _EvalOptions) -> None:
    """Print the perplexity of held-out text: forward, backward and mean, always over the whole vocabulary."""
    import numpy as np

    from elmo_fast.corpus import is_prepared, open_corpus, read_corpus
    from elmo_fast.pretrain.evaluate import evaluate
    from elmo_fast.text import rereadable

    counts = _common.arguments(options, "batch_size", "unroll_steps", "worst")
    check_counts(**{f"--{name}": value for name, value in counts.items()})
    model = load_language_model(options)
    vocabulary = model.vocabulary
    source = options.test_prefix
    with rereadable(source) if source == "-" else contextlib.nullcontext(source) as text:
        reading = _common.reading(options, options.tokenizer or model.options.tokenizer, text)
        corpus = (
            open_corpus(text, vocabulary=vocabulary) if is_prepared(text) else read_corpus(text, vocabulary, **reading)
        )
        with _common.Progress(options, corpus.positions) as progress:
            perplexity = evaluate(
                model,
                corpus,
                per_sentence=options.per_sentence is not None or options.worst is not None,
                progress=progress.add,
                **_common.arguments(options, "batch_size", "unroll_steps"),
            )
        unknown = corpus.unknown / corpus.tokens
        print(f"perplexity {perplexity}; {unknown:.1%} of the words are outside the vocabulary")
        if perplexity.sentences is not None:
            words = corpus.places(np.arange(corpus.sentences))[1] - 1
            lines = _lines_of(text, words, reading)
            if options.worst is not None:
                _print_worst(options.worst, corpus, lines, words, perplexity.sentences)
            if options.per_sentence is not None:
                _write_table(options.per_sentence, lines, words, perplexity.sentences)
    if options.output is not None:
        figures = {
            "perplexity": perplexity.mean,
            "perplexity_forward": perplexity.forward,
            "perplexity_backward": perplexity.backward,
            "loss_forward": perplexity.forward_loss,
            "loss_backward": perplexity.backward_loss,
            "words": perplexity.words,
            "sentence_ends": perplexity.sentence_ends,
            "out_of_vocabulary": unknown,
            "trained_by": model.options.trained_by,
            "how": perplexity.how or "softmax over the whole vocabulary",
        }
        write_json(options.output, figures, indent=2)


def load_language_model(options: Predicting) -> Any:
    """Check the options; return the language model, which knows its vocabulary."""
    from elmo_fast.checkpoints import VOCABULARY, file_beside
    from elmo_fast.pretrain.language_model import LanguageModel
    from elmo_fast.text import Vocabulary

    if options.model is not None and options.save_dir is not None:
        raise ElmoFastError("--model and --save_dir name the same thing; give one of them")
    options.model, options.save_dir = options.model or options.save_dir, None
    _common.resolve_model(options)
    device = _common.set_up(options, trained=True)
    state, architecture = _common.load_state(options)
    model = LanguageModel.from_checkpoint(architecture, state, precision=options.precision).to(device)
    named = options.vocab_file
    own = None if options.model is None else file_beside(options.model)
    if (source := named or own) is None:
        folder = options.model or "the model"
        raise ElmoFastError(f"{folder} has no {VOCABULARY}; name the vocabulary it was trained with by --vocab_file")
    vocabulary = Vocabulary.read(source)
    model.check_vocabulary(vocabulary, f"the model's {VOCABULARY}" if named is None else f"--vocab_file {named}")
    # A foreign model stores no digest of its vocabulary.
    if named is not None and own is not None and Vocabulary.read(own).words != vocabulary.words:
        raise ElmoFastError(f"--vocab_file {named} is not the vocabulary of the model, {own}; leave --vocab_file out")
    model.vocabulary = vocabulary
    return model


def _write_table(path: str, lines: Any, words: Any, losses: Any) -> None:
    """Write one row per sentence, separated by tabs, below a header of COLUMNS.

    lines, words: of each sentence, [sentences]; losses: in nats, with its end, [2, sentences]. Perplexities are over
    words and sentence end; the last is that of the mean loss.
    """
    import numpy as np

    means = np.stack([*losses, losses.mean(0)]) / (words + 1)
    rows = np.stack([lines, words, *losses, *np.exp(np.minimum(means, MOST_NATS))], axis=1)
    formats = ["%d", "%d", *["%.8g"] * 5]
    with writing(path) as file:
        np.savetxt(file, rows, formats, delimiter="\t", header="\t".join(COLUMNS), comments="")
    _common.logger().info("%s: %d lines with their perplexities", path, len(words))


def _print_worst(count: int, corpus: Any, lines: Any, words: Any, losses: Any) -> None:
    """Print the sentences of the highest perplexity, the highest first; arguments as `_write_table`'s."""
    import numpy as np

    means = losses.mean(0) / (words + 1)
    begins, positions = corpus.places(worst := np.argsort(-means, kind="stable")[:count])
    rows = [("line", "perplexity", "words")]
    for index, begin, number in zip(worst, begins, positions, strict=True):
        text = printable(" ".join(corpus.words(begin, number)))
        rows.append((str(lines[index]), f"{np.exp(min(means[index], MOST_NATS)):.8g}", text))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for line, perplexity, text in rows:
        print(f"{line:>{widths[0]}}  {perplexity:>{widths[1]}}  {text}")


def _lines_of(text: str, words: Any, reading: Any) -> Any:
    """Return the line or row of each sentence, counted from 1 through all files; in a prepared corpus its number.

    words: of each sentence, to detect a changed text. Raises ElmoFastError if it has changed.
    """
    import numpy as np

    from elmo_fast.corpus import is_prepared
    from elmo_fast.text.sources import sentences_of

    if is_prepared(text):
        return np.arange(1, len(words) + 1)
    counts = np.fromiter((len(sentence.tokens) for sentence in sentences_of(text, **reading)), np.int64)
    lines = np.flatnonzero(counts)
    if not np.array_equal(counts[lines], words):
        raise ElmoFastError(f"--test_prefix {text} changed while being read; run the command again")
    return lines + 1


class _FillOptions(Predicting):
    sentence: str = option("", positional=True, metavar="SENTENCE", nargs="?")
    """tokens separated by spaces (--tokenizer splits raw text), with ___ (three underscores or more) at each gap: 'the
    ___ of the river .'; a gap at the end is the next word"""
    topn: int = 5
    scores: bool = flag()
    """print the probability of each token of SENTENCE in both directions, in place of filling gaps"""
    sample: int | None = option(None, metavar="N")
    """write N sentences that begin with SENTENCE, drawn word by word from the forward direction"""


def run_fill(options: _FillOptions) -> None:
    """Print the likeliest words for each gap of a sentence, by both directions of a pretrained model.

    Needs a model with its softmax and vocabulary, such as the save_dir of `elmo-fast pretrain`.
    """
    if options.scores and options.sample is not None:
        raise ElmoFastError("--scores and --sample ask for different things; give one of them")
    if options.topn != _FillOptions.topn and (options.scores or options.sample is not None):
        raise ElmoFastError("--topn is for gaps, and --scores and --sample fill none; leave it out")
    check_counts(**{"--sample": options.sample})
    if options.sample is None and not options.sentence.strip():
        raise ElmoFastError("SENTENCE must hold a sentence, as in 'the ___ of the river .'; got nothing")
    model = load_language_model(options)
    tokens = _tokens(options, model)
    if "___" in tokens and (options.scores or options.sample is not None):
        raise ElmoFastError("--scores and --sample fill no gap and would read ___ as a word; leave it out, or them")
    if options.sample is not None:
        import torch

        generator = torch.Generator().manual_seed(options.seed)
        for _ in range(options.sample):
            print(printable(" ".join(model.sample(tokens, generator=generator))))
        return
    rows: list[tuple[str, ...]]
    if options.scores:
        scores = model.score(tokens)
        print("ln p of each token after those before it, and before those after it")
        rows = [("token", "forward", "backward")]
        rows += [(each.token, f"{each.forward:.4f}", f"{each.backward:.4f}") for each in scores]
        if unknown := [token for token in dict.fromkeys(tokens) if token not in model.vocabulary]:
            print(printable(f"outside the vocabulary, as likely as <UNK>: {' '.join(unknown)}"))
    else:
        rows = [("gap", "word", "probability")]
        for number, words in enumerate(model.fill(tokens, topn=options.topn), start=1):
            rows += [(str(number), each.word, f"{each.probability:.4f}") for each in words]
    _common.print_table(rows)


def _tokens(options: _FillOptions, model: Any) -> list[str]:
    """Return the tokens of the sentence, gaps whole, whatever the tokenizer makes of them."""
    from elmo_fast.pretrain.language_model import GAP
    from elmo_fast.text import tokenizer

    split, tokens = tokenizer(options.tokenizer or model.options.tokenizer), list[str]()
    for number, part in enumerate(re.split("_{3,}", options.sentence)):
        tokens += [GAP] * (number > 0)
        tokens += split(part) if part.strip() else []
    return tokens
