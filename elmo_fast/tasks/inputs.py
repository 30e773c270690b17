"""What a task's features are computed from and does not save itself: the files of a frozen biLM and of word vectors."""

from elmo_fast.files import sha256_of
from elmo_fast.modules.model_digest import model_digest
from elmo_fast.tasks.config import TaskConfig
from elmo_fast.tasks.model import TaskModel


def input_digests(config: TaskConfig, model: TaskModel) -> dict[str, str]:
    """The configuration's names of such files ("model", "vectors") -> a digest of what they hold.

    With another biLM, or other vectors, under the same name the trained weights would mean nothing, and nothing else
    would tell. A fine-tuned biLM is saved with the task, and so is not among them.
    """
    found = {}
    if model.elmo is not None and not model.elmo.fine_tuned:
        found["model"] = model_digest(model.elmo.bilm)
    if config.vectors is not None:
        found["vectors"] = sha256_of(config.vectors)
    return found
