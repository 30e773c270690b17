"""The predictions of a model for a split, and their scores."""

import torch

from elmo_fast.progress import Progress
from elmo_fast.tasks.data import Split, fixed_batches
from elmo_fast.tasks.labels import Labels
from elmo_fast.tasks.model import TaskModel
from elmo_fast.tasks.scores import Scores, are_spans, tag_scores


@torch.no_grad()
def predict(
    model: TaskModel, split: Split, labels: Labels, batch_size: int, progress: Progress | None = None
) -> list[list[str]]:
    """The predicted labels of each sentence, in the order of the split; without dropout."""
    was_training, found, done = model.training, [[""]] * len(split.examples), 0
    device = next(model.parameters()).device
    model.eval()
    try:
        for indices in fixed_batches(split.lengths, batch_size):
            batch = split.batch(indices, device)
            for index, ids in zip(indices, model.decode(model(batch), batch), strict=True):
                found[index] = labels.of_ids(ids)
            done += len(indices)
            if progress is not None:
                progress(done, len(split.examples))
    finally:
        model.train(was_training)
    return found


def score(split: Split, predicted: list[list[str]], labels: Labels) -> Scores:
    """The scores of predictions: of spans if the tags of training and of the split are span tags, else of labels.

    The predictions do not decide, so a split always has the same measure.
    """
    return tag_scores(split.gold, predicted, spans=split.per_word and are_spans([labels.names], split.gold))
