"""The linear-chain conditional random field: the likelihood of a whole sequence of labels, and the likeliest one."""

import torch
from torch import Tensor, nn

from elmo_fast.errors import ElmoFastError, check_counts
from elmo_fast.ops._checks import check_dtype, check_shapes, check_values


class CRF(nn.Module):
    """Scores of neighbouring labels, learned with the rest of a tagger.

        s(x, y) = start[y_1] + Σ_t scores[t, y_t] + Σ_t transitions[y_{t-1}, y_t] + end[y_T]
        log p(y | x) = s(x, y) - log Σ_y' exp s(x, y')

    Args:
        labels: K, the number of labels.

    transitions is [K, K], from the row's label to the column's; start and end are [K]. All start at zero, where
    the field is K independent softmaxes.

    Source: Lafferty et al. 2001; Lample et al. 2016, section 2.2.
    """

    def __init__(self, labels: int) -> None:
        super().__init__()
        check_counts(labels=labels)
        self.transitions = nn.Parameter(torch.zeros(labels, labels))
        self.start = nn.Parameter(torch.zeros(labels))
        self.end = nn.Parameter(torch.zeros(labels))

    def log_likelihood(self, scores: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """Return log p(labels | scores) of each row, [B].

        Args:
            scores: of each label at each word, [B, T, K]; values past a row's length are ignored.
            labels: [B, T] int64, 0..K-1 within each length, anything past it.
            lengths: [B] int64, each 1..T.
        """
        return self.path_score(scores, labels, lengths) - self.log_partition(scores, lengths)

    def path_score(self, scores: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """s(x, y) of each row, [B]; arguments as `log_likelihood`'s."""
        within = self._within(scores, lengths)
        check_shapes("CRF", ("labels", labels, "B T"), B=scores.shape[0], T=scores.shape[1])
        check_dtype("CRF", "labels", labels, torch.int64)
        labels = torch.where(within, labels, 0)
        check_values("CRF", "labels", labels, len(self.start) - 1, "lie in 0..K-1={} within each length")
        words = scores.gather(2, labels[..., None])[..., 0]
        steps = self.transitions[labels[:, :-1], labels[:, 1:]]
        last = labels.gather(1, lengths[:, None] - 1)[:, 0]
        total = torch.where(within, words, 0).sum(1) + torch.where(within[:, 1:], steps, 0).sum(1)
        return total + self.start[labels[:, 0]] + self.end[last]

    def log_partition(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Return log Σ_y exp s(x, y) of each row, [B], by the forward algorithm; arguments as `log_likelihood`'s."""
        within = self._within(scores, lengths)
        alpha = self.start + scores[:, 0]
        for t in range(1, scores.shape[1]):
            step = torch.logsumexp(alpha[:, :, None] + self.transitions, dim=1) + scores[:, t]
            alpha = torch.where(within[:, t, None], step, alpha)
        return torch.logsumexp(alpha + self.end, dim=1)

    def marginals(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Return p(y_t = k | x) of each label at each word, [B, T, K], 0 past each length; arguments as `decode`'s.

        It is the gradient of log Σ_y exp s(x, y) in the scores.
        """
        with torch.enable_grad():
            leaf = scores.detach().requires_grad_()
            return torch.autograd.grad(self.log_partition(leaf, lengths).sum(), leaf)[0]

    @torch.no_grad()
    def decode(self, scores: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the likeliest labels of each row, by Viterbi's algorithm.

        labels [B, T] int64 are 0 past each length; their scores s(x, y) are [B]; arguments as `log_likelihood`'s.
        """
        within = self._within(scores, lengths)
        best = self.start + scores[:, 0]
        stay = torch.arange(scores.shape[2], device=scores.device).expand_as(best)
        origins = []
        for t in range(1, scores.shape[1]):
            step, origin = (best[:, :, None] + self.transitions).max(dim=1)
            best = torch.where(within[:, t, None], step + scores[:, t], best)
            origins.append(torch.where(within[:, t, None], origin, stay))
        total, last = (best + self.end).max(dim=1)
        path = [last]
        for origin in reversed(origins):
            path.append(origin.gather(1, path[-1][:, None])[:, 0])
        return torch.where(within, torch.stack(path[::-1], dim=1), 0), total

    def _within(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Which positions lie within each row's length, [B, T]; ElmoFastError where an argument does not fit."""
        check_shapes("CRF", ("scores", scores, "B T K"), ("lengths", lengths, "B"), K=len(self.start))
        time = scores.shape[1]
        if lengths.numel() and (int(lengths.min()) < 1 or int(lengths.max()) > time):
            raise ElmoFastError(f"lengths must lie in 1..T={time}; got {int(lengths.min())} to {int(lengths.max())}")
        return torch.arange(time, device=scores.device) < lengths[:, None]
