"""`elmo-fast cache-vocab`: the context-free vector of every word of a vocabulary (bilm-tf's dump_token_embeddings)."""

from typing import Any

from elmo_fast.cli import _common, _model, _progress
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import Vocabulary


def build_parser() -> Any:
    """The options of `elmo-fast cache-vocab`."""
    parser = _common.new_parser(
        "cache-vocab", "Writes the dataset `embedding` [words, D]: the character encoder's vector of every word."
    )
    _model.add_options(parser)
    parser.add_argument("--vocab_file", type=str, required=True, help="a vocabulary with <S>, </S> and <UNK>")
    parser.add_argument("--output", type=str, required=True, help="HDF5 file to write")
    parser.renamed("outfile", "output")
    parser.writes("output")
    parser.add_argument("--batch_size", type=int, default=1024, help="words encoded together")
    parser.add_argument("--file_friendly_logging", action="store_true", help="progress as lines instead of a bar")
    return parser


def run(arguments: Any) -> int:
    """Encodes the vocabulary batch by batch and writes as it goes."""
    if arguments.batch_size < 1:
        raise ElmoFastError(f"--batch_size must be 1 or more; got {arguments.batch_size}")
    _model.resolve(arguments)
    vocabulary = Vocabulary.read(arguments.vocab_file)
    device = _common.set_up(arguments)
    bilm = _model.load_embedder(arguments, device, stateful=False).elmo_bilm
    if bilm.reads_words:
        raise ElmoFastError("this model reads word ids: its vectors are a table already (embedding, in its weights)")
    progress = _progress.ProgressBar(len(vocabulary), lines=arguments.file_friendly_logging, quiet=arguments.quiet)
    write_vectors(arguments, vocabulary, bilm, device, progress)
    _common.logger().info("%s: %d words in %s", arguments.output, progress.done, _progress.duration(progress.seconds))
    return 0


def write_vectors(arguments: Any, vocabulary: Vocabulary, bilm: Any, device: Any, progress: Any) -> None:
    """Writes the vectors of the words in the order of their ids."""
    import numpy as np
    import torch

    from elmo_fast.files import hdf5_replacing

    encoder = bilm._token_embedder
    table = vocabulary.characters(encoder.max_characters_per_token)
    width = encoder.get_output_dim()
    with progress, hdf5_replacing(arguments.output) as (file, written), torch.no_grad():
        dataset = file.create_dataset("embedding", (len(vocabulary), width), np.float32)
        for start in range(0, len(vocabulary), arguments.batch_size):
            rows = np.arange(start, min(start + arguments.batch_size, len(vocabulary)))
            ids = torch.from_numpy(table.ids(rows)).to(device)
            dataset[start : start + len(rows)] = encoder.encode(ids).cpu().numpy()
            written.check()
            progress.add(len(rows))
