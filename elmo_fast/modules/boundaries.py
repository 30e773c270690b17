"""Add and remove the begin and end markers of sentences, for whole batches at once."""

import torch
from torch import Tensor


def add_sentence_boundary_token_ids(
    tensor: Tensor, mask: Tensor, sentence_begin_token: Tensor | int, sentence_end_token: Tensor | int
) -> tuple[Tensor, Tensor]:
    """Put a begin marker before and an end marker after each sentence of a batch.

    A row with n unmasked positions becomes [begin, row[:n], end, rest of the row], so that an empty sentence becomes
    [begin, end]. The new mask is where the result is positive (anywhere along the last dimension of a 3-D tensor).

    Args:
        tensor: ids [B, T], or character ids or vectors [B, T, C], any dtype.
        mask: which positions hold words, [B, T] bool or number; words first, padding after them.
        sentence_begin_token, sentence_end_token: an id, or a row of shape [C].

    Returns:
        (tensor [B, T+2] or [B, T+2, C], mask [B, T+2] bool).

    Source: AllenNLP 0.9 and 2.x, nn/util.py.
    """
    begin = torch.as_tensor(sentence_begin_token, dtype=tensor.dtype, device=tensor.device)
    end = torch.as_tensor(sentence_end_token, dtype=tensor.dtype, device=tensor.device)
    edge = (tensor.shape[0], 1, *tensor.shape[2:])
    longer = torch.cat([begin.expand(edge), tensor, tensor.new_zeros(edge)], dim=1)
    at_end = torch.arange(longer.shape[1], device=tensor.device) == (mask.long().sum(dim=1) + 1)[:, None]
    added = torch.where(at_end[..., None] if tensor.dim() == 3 else at_end, end, longer)
    return added, (added > 0).any(dim=-1) if added.dim() == 3 else added != 0


def remove_sentence_boundaries(tensor: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Remove the first and the last unmasked position of each row; what is then past the sentence is 0.

    Args:
        tensor: vectors with both markers, [B, T+2, D].
        mask: which positions hold words or markers, [B, T+2] bool or number.

    Returns:
        (tensor [B, T, D], mask [B, T] bool).

    Source: AllenNLP 0.9 and 2.x, nn/util.py.
    """
    inner_mask = mask_without_boundaries(mask)
    inner = tensor[:, 1 : 1 + inner_mask.shape[1]]
    return torch.where(inner_mask[..., None], inner, 0), inner_mask


def mask_without_boundaries(mask: Tensor) -> Tensor:
    """Return the mask [B, T] of the words of sentences whose mask with markers is [B, T+2]."""
    words = mask.long().sum(dim=1) - 2
    return torch.arange(max(mask.shape[1] - 2, 0), device=mask.device) < words[:, None]
