"""The models and texts that several sections use: the original architecture, or a toy of it."""

import torch
from torch import Tensor

from benchmarks.gpu.session import Session
from elmo_fast import batch_to_ids
from elmo_fast.checkpoints import ElmoOptions
from elmo_fast.modules import BiLM, CharacterEncoder
from elmo_fast.pretrain.architecture import options_of
from elmo_fast.pretrain.config import ModelConfig

TOY = {"filters": [[1, 4], [2, 8]], "char_embedding_dim": 16, "n_highway": 1, "dim": 16, "projection_dim": 8}


def options(session: Session, words: int = 1000, samples: int | None = None) -> ElmoOptions:
    """Of the original architecture, without dropout, so that sides can be compared; a toy one at quick sizes."""
    return options_of(
        ModelConfig(**(TOY if session.quick else {}), dropout=0.0), words, n_negative_samples_batch=samples
    )


def settings(session: Session, precision: str) -> dict[str, str]:
    """`precision` and `backend` of a module."""
    return {"precision": precision, "backend": session.backend("char_cnn")}


def character_encoder(session: Session, precision: str) -> CharacterEncoder:
    """New weights, trained, no cache across batches; the filters wide enough for features to differ."""
    made = CharacterEncoder(options(session), requires_grad=True, cache_size=0, **settings(session, precision))
    spread(made)
    return made.to(session.device)


def bilm(session: Session, precision: str) -> BiLM:
    """New weights, no gradients, no state or cache across batches."""
    torch.manual_seed(0)
    made = BiLM(options(session), stateful=False, cache_size=0, **settings(session, precision))
    spread(made._token_embedder)
    return made.to(session.device).eval()


def spread(encoder: CharacterEncoder) -> None:
    """Filters as in trained models, some ten times wider than at the start: features that differ between words."""
    with torch.no_grad():
        for convolution in encoder._convolutions:
            convolution.weight.mul_(5)


def character_ids(session: Session, tokens: int) -> tuple[Tensor, str, int]:
    """(ids [tokens, C] on the device, where the text is from, how many words are distinct) of running text."""
    words, source = session.sentences()
    words = [words[i % len(words)] for i in range(tokens)]
    return batch_to_ids([words])[0].to(session.device), f"{source}; its first {tokens} words", len(set(words))


def sentences_of(session: Session, batch: int, length: int) -> list[list[str]]:
    """`batch` stretches of running text of `length` words each."""
    words, _ = session.sentences()
    return [[words[(i * length + j) % len(words)] for j in range(length)] for i in range(batch)]
