"""negative_sampling in plain torch: the definition."""

from torch import Tensor
from torch.nn.functional import logsigmoid

from elmo_fast.ops._table_rows import in_chunks
from elmo_fast.ops.negative_sampling.op import NegativeSamplingArguments


def _losses(
    hidden: Tensor, true_rows: Tensor, sample_rows: Tensor, offsets: Tensor, ids: Tensor, share: float, hits: bool
) -> Tensor:
    count = hidden.shape[0]
    true = (hidden * true_rows).sum(1) + offsets[:count]
    others = logsigmoid(-(hidden @ sample_rows.t() + offsets[count:]))
    if not hits:
        others = others.masked_fill(ids[:count, None] == ids[None, count:], 0.0)
    return -logsigmoid(true) - share * others.sum(1)


def run(a: NegativeSamplingArguments) -> Tensor:
    return in_chunks(_losses, a, a.share, a.log_noise is not None)
