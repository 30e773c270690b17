"""Vectors of a Hugging Face dataset's sentences: a function for `Dataset.map`."""

from elmo_fast.errors import require
from elmo_fast.integrations._columns import ColumnVectors

require("datasets", "datasets", __name__)


class ElmoColumn(ColumnVectors):
    """Words in, vectors out: `rows.map(ElmoColumn(model), batched=True)`.

    The cache of datasets finds the vectors again as long as the model's weights and the settings are the same.

    Args: as in ColumnVectors.

    Raises: ElmoFastError, CheckpointError.
    """
