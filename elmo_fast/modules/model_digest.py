"""A digest of a biLM, to tell whether what was computed with it still holds."""

import hashlib
import json

import torch

from elmo_fast.modules.bilm import BiLM


def model_digest(model: BiLM) -> str:
    """SHA-256 of a biLM's options and weights."""
    found = hashlib.sha256(json.dumps(model.options.to_dict(), sort_keys=True).encode())
    for name, tensor in sorted(model.checkpoint_state().items()):
        values = tensor.detach().cpu().contiguous()
        found.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        found.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
