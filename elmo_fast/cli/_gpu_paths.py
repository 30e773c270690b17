"""What training and embedding run on a GPU besides single ops; `elmo-fast check` compares it with plain torch or eager.

A check takes a precision and a device, and returns one sentence if a result is wrong, else None.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from elmo_fast.corpus import encode
from elmo_fast.corpus.streams import Stream
from elmo_fast.modules.bilm import BiLM
from elmo_fast.ops import cases
from elmo_fast.ops._sampling import dropout_factors
from elmo_fast.ops.cases import why_worse
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.language_model import make_input_reader, make_language_model, options_of
from elmo_fast.pretrain.optimizer import AdaGrad
from elmo_fast.pretrain.step import Step
from elmo_fast.text import Vocabulary, count_words

# As small as possible, since a rehearsal without a GPU interprets the kernels.
SENTENCES = [line.split() for line in ("a cat sat", "it saw a cat", "it sat down")]
TINY = {"filters": [[2, 16]], "n_highway": 1, "dim": 32, "projection_dim": 16, "n_layers": 1}
TINY |= {"max_characters_per_token": 10, "n_negative_samples_batch": 6, "dropout": 0.2}


def check_dropout(precision: str, device: torch.device) -> str | None:
    """Compare masks with those of plain torch: rows of no whole blocks, a seed and an offset of more than 32 bits."""
    p, seed, offset = 0.3, 2**40 + 7, torch.tensor([2**33 + 5], device="cpu")
    for shape in ((2, 3, 10), (6, 5, 1500)):
        expected = dropout_factors(p, seed, offset, 70, shape, plain=True)
        actual = dropout_factors(p, seed, offset.to(device), 70, shape).cpu()
        if not torch.equal(actual, expected):
            return f"{int((actual != expected).sum())} of {expected.numel()} numbers differ from those of plain torch"
    return None


def check_captured_step(precision: str, device: torch.device) -> str | None:
    """Compare training steps replayed from CUDA graphs with eager ones: full batches, then last ones of an epoch."""
    config = PretrainConfig.from_flat({**TINY, "precision": precision})
    corpus = encode(SENTENCES, Vocabulary.build(count_words(SENTENCES), 1))
    stream = Stream(corpus, 2, 2, seed=1)
    first, second, *_, last = (stream.batch(0, number) for number in range(stream.steps_per_epoch))
    batches = first, second, first, last, last  # of each shape the first is eager, the second captured

    def take(cuda_graph: bool) -> tuple[dict[str, Tensor], int]:
        model = make_language_model(config, len(corpus.vocabulary), device)
        reader, optimizer = make_input_reader(model.options, corpus, device), AdaGrad(model.parameters(), 0.2)
        step = Step(model, optimizer, reader, rows=2, clip_norm=0.5, state_reset=0.2, cuda_graph=cuda_graph)
        state: Any = None
        left: dict[str, Tensor] = {}
        for number, batch in enumerate(batches):
            result = step(batch, state, number)
            state = result.state
            figures = (torch.as_tensor(each, device="cpu") for each in result[:3])
            left[f"figures of step {number}"] = torch.stack([each.detach() for each in figures])
        left |= {"h": state[0], "c": state[1], **dict(model.named_parameters())}
        return left, 0 if step.captured is None else len(step.captured.graphs)

    (eager, _), (replayed, graphs) = take(False), take(True)
    for name, expected in eager.items():
        if not torch.equal(replayed[name], expected):
            return f"{name}: other bits than those of eager steps"
    return None if graphs == 2 else f"{graphs} graphs were captured, 2 are expected: of full batches and the last"


def check_embedding_graph(precision: Any, device: torch.device) -> str | None:
    """Compare activations replayed from a CUDA graph with float64 and plain torch: two batches of a shape in turn."""
    options = options_of(PretrainConfig.from_flat(TINY).model, 10)
    replayed = BiLM(options, stateful=False, cache_size=0, precision=precision, cuda_graphs=True).eval()
    plain, exact = (
        BiLM(options, stateful=False, cache_size=0, precision=each, backend="reference")
        for each in (precision, "float32")
    )
    for model in (plain, exact):
        model.load_state_dict(replayed.state_dict())
    replayed, exact = replayed.to(device), exact.double()
    first, second = [SENTENCES[0][:2], SENTENCES[2]], [SENTENCES[2], SENTENCES[0][1:]]
    for number, batch in enumerate((first, second, first)):  # the first is eager, the second captured
        ids = replayed.batch_to_ids(batch)
        with torch.no_grad():
            result, torchs, truth = (
                torch.stack(list(model(each)["activations"])).cpu()
                for model, each in ((replayed, ids.to(device)), (plain, ids), (exact, ids))
            )
        if (why := why_worse(f"batch {number}", result, torchs, truth, precision)) is not None:
            return why
    graphs = len(replayed._graphs)
    return None if graphs == 1 else f"{graphs} graphs were captured, 1 is expected"


def check_second_gpu(precision: str, device: torch.device) -> str | None:
    """Check an op and an embedding graph on another GPU than the current one."""
    other = torch.device("cuda", ((device.index or 0) + 1) % torch.cuda.device_count())
    with torch.cuda.device(device):
        whys = (
            cases.why_wrong(case, "triton", precision, other) for case in cases.CASES["scalar_mix"][0](cases.Draw())
        )
        return next(filter(None, whys), None) or check_embedding_graph(precision, other)


# The last one needs two GPUs.
PATHS: dict[str, Callable[[str, torch.device], str | None]] = {
    "captured step": check_captured_step,
    "embedding graph": check_embedding_graph,
    "dropout": check_dropout,
    "second GPU": check_second_gpu,
}
