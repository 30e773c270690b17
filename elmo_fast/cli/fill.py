"""`elmo-fast fill`: what a language model says of a sentence."""

from dataclasses import dataclass
from typing import Any

from elmo_fast.cli._parser import flag, option
from elmo_fast.cli.eval import Predicting, load_language_model
from elmo_fast.errors import ElmoFastError, printable


@dataclass(kw_only=True)
class _FillOptions(Predicting):
    sentence: str = option("", positional=True, metavar="SENTENCE", nargs="?")
    """tokens separated by spaces (--tokenizer splits raw text), with ___ at each gap: 'the ___ of the river .'; a gap
    at the end is the next word"""
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
    if options.sample is not None and options.sample < 1:
        raise ElmoFastError(f"--sample must be 1 or more; got {options.sample}")
    if options.sample is None and not options.sentence.strip():
        raise ElmoFastError("SENTENCE must hold a sentence, as in 'the ___ of the river .'; got nothing")
    model, _ = load_language_model(options)
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
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(printable(each).ljust(width) for each, width in zip(row, widths, strict=True)).rstrip())


def _tokens(options: _FillOptions, model: Any) -> list[str]:
    """Return the tokens of the sentence, gaps whole, whatever the tokenizer makes of them."""
    from elmo_fast.pretrain.language_model import GAP
    from elmo_fast.text import tokenizer

    split, tokens = tokenizer(options.tokenizer or model.options.tokenizer), list[str]()
    for number, part in enumerate(options.sentence.split(GAP)):
        tokens += [GAP] * (number > 0)
        tokens += split(part) if part.strip() else []
    return tokens
