"""The character encoder, forward and backward to all its weights, on running text.

"every token" encodes what it is given, word by word, on all sides: the kernels against each other. "as trained" lets
ours encode each distinct word once, as CharacterEncoder does by itself; the rivals have no such thing.
"""

import functools

import torch
from torch import Tensor

from benchmarks.gpu import rivals, roofline
from benchmarks.gpu.compare import Side, compare
from benchmarks.gpu.judge import COMPILED, OURS, Aim, What
from benchmarks.gpu.models import character_encoder, character_ids
from benchmarks.gpu.session import Session
from elmo_fast.modules import CharacterEncoder

EAGER = "eager"
GOALS = (Aim("faster", 5.0, EAGER), Aim("faster", 2.0, COMPILED))
CHECKED = 256  # words on which results are compared with float64


def run(session: Session) -> None:
    """As trained, then every token; bfloat16."""
    (precision,) = session.precisions("bfloat16")
    session.serving(precision, "char_cnn", "highway", "unique_rows")
    tokens = 12 if session.quick else 20480
    ids, source, distinct = character_ids(session, tokens)
    session.note("text", source)
    session.note("distinct words", distinct)
    torch.manual_seed(0)
    encoder = character_encoder(session, precision)
    for unique in (True, False):
        name = "as trained" if unique else "every token"
        what = What(
            f"char encoder, forward + backward, {tokens} tokens, {name}, {precision}",
            precision,
            work=work(session, distinct if unique else tokens),
            aims=GOALS if unique else (),
        )
        names = {
            OURS: functools.partial(ours, session, encoder, ids, precision, unique=unique),
            EAGER: functools.partial(eager, session, encoder, ids, precision),
            COMPILED: functools.partial(eager, session, encoder, ids, precision, compiled=True),
        }
        compare(session, what, names, functools.partial(truth, encoder, ids))


def work(session: Session, words: int) -> roofline.Work:
    """What `words` words must cost, forward and backward."""
    if session.quick:
        return roofline.encoder(words, ((1, 4), (2, 8)), size=8, highways=1, train=True)
    return roofline.encoder(words, train=True)


def side(function: object, ids: Tensor, leaves: list[Tensor], named: dict[str, Tensor], dtype: torch.dtype) -> Side:
    """Forward and all gradients of function(ids). Checked with a gradient that is 0 past the first words, so that
    float64 need not go further, and the function sees one shape."""
    size = named["projection"].shape[0]
    generator = torch.Generator(ids.device).manual_seed(1)
    first = torch.randn(min(CHECKED, len(ids)), size, device=ids.device, generator=generator).to(dtype)
    checking = torch.zeros(len(ids), size, device=ids.device, dtype=dtype)
    checking[:CHECKED] = first
    cotangent = torch.randn(len(ids), size, device=ids.device, generator=generator).to(dtype)

    def gradients(cotangent: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        vectors = function(ids)  # type: ignore[operator]
        return vectors, torch.autograd.grad(vectors, leaves, cotangent)

    def result() -> dict[str, Tensor]:
        vectors, found = gradients(checking)
        places = {id(leaf): i for i, leaf in enumerate(leaves)}
        checked = {f"d {name}": found[places[id(leaf)]] for name, leaf in named.items()}
        rest = {f"d leaf {i}": each for i, each in enumerate(found)}  # finite, at the least
        return {"vectors": vectors.detach()[:CHECKED], **checked, **rest}

    return Side(lambda: gradients(cotangent), result)


def ours(session: Session, encoder: CharacterEncoder, ids: Tensor, precision: str, *, unique: bool) -> Side:
    """CharacterEncoder.encode."""
    encoder.train()

    def function(words: Tensor) -> Tensor:
        encoder.unique_words = unique
        return encoder.encode(words)

    weight = encoder._projection
    assert weight is not None
    named = {"projection": weight.weight, "highway": encoder._highways.layers[0].weight}
    return side(function, ids, list(encoder.parameters()), named, torch.float32)


def eager(
    session: Session | None,
    encoder: CharacterEncoder,
    ids: Tensor,
    precision: str,
    *,
    compiled: bool = False,
) -> Side:
    """AllenNLP's encoder in plain torch, or that compiled; all in the one dtype."""
    dtype = getattr(torch, precision)
    parts = rivals.encoder_parameters(encoder)
    own = [
        [t.detach().to(dtype).requires_grad_() for t in part]
        if isinstance(part, list)
        else part.detach().to(dtype).requires_grad_()
        for part in parts
    ]
    leaves = [t for part in own for t in (part if isinstance(part, list) else [part])]
    encode = session.compiled(rivals.encode) if compiled and session is not None else rivals.encode
    named = {"projection": own[5], "highway": own[3][0]}
    return side(lambda words: encode(words, *own), ids, leaves, named, dtype)


def truth(encoder: CharacterEncoder, ids: Tensor) -> dict[str, Tensor]:
    """The rival's formula in float64, of the first words alone."""
    found = eager(None, encoder, ids[:CHECKED], "float64").result()
    return {name: tensor for name, tensor in found.items() if "leaf" not in name}
