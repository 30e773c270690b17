"""A small biLM's pass replayed from a CUDA graph, to be held to the same pass launch by launch on the user's card."""

import torch

from elmo_fast.checkpoints import CharCnnOptions, ElmoOptions, LstmOptions
from elmo_fast.modules.bilm import BiLM
from elmo_fast.op_choices import InferencePrecision
from elmo_fast.ops import _tuned
from elmo_fast.ops._cases import Draw, Replayed

LSTM = LstmOptions(dim=40, projection_dim=16, n_layers=2, cell_clip=1.5, proj_clip=1.0, use_skip_connections=True)
CHARACTERS = CharCnnOptions(
    filters=((1, 8), (2, 8), (3, 16)), activation="relu", embedding_dim=4, max_characters_per_token=10, n_highway=1
)


def replayed(precision: InferencePrecision, device: torch.device) -> Replayed:
    """Sentences that fill a bucket, new ones each time: the first pass is launched, the second captured, the third
    replayed. So the launches are those of the captured function, on the same shapes."""
    draw = Draw()
    model = BiLM(ElmoOptions(LSTM, CHARACTERS), requires_grad=False, stateful=False, precision=precision)
    with torch.no_grad(), _tuned.forced({_tuned.graphs(precision): 1}):
        for parameter in model.parameters():
            parameter.copy_(draw.normal(*parameter.shape, scale=0.3))
        model.to(device).eval()
        for _ in range(3):
            ids = (draw.whole(260, 4, 4, CHARACTERS.max_characters_per_token) + 1).to(device)
            ids[3, 2:] = 0  # padding
            ours = model(ids)
    with torch.no_grad(), _tuned.forced({_tuned.graphs(precision): 0}):
        zeros = [ids.new_zeros(2, 2, 4, size, dtype=torch.float32) for size in (LSTM.projection_dim, LSTM.dim)]
        activations, mask, _, _ = model._whole(ids, *zeros)
    found = {"activations": torch.stack(ours["activations"]), "mask": ours["mask"]}
    return Replayed(found, {"activations": activations, "mask": mask}, len(model._graph_replay.graphs))
