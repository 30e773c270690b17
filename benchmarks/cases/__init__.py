"""The cases, in the order in which they are run; each module has `run(settings) -> Report`."""

import pathlib
from typing import NamedTuple


class Settings(NamedTuple):
    """What a case may ask of the command line.

    quick: a short look in place of a measurement. text: a file of one sentence per line, or None for the default.
    peer_python: an interpreter with AllenNLP 2.10.1, or None.
    """

    quick: bool
    text: pathlib.Path | None
    peer_python: str | None


# Cases whose results are kept for each CPU and instruction set, in a folder of their own (`machine.folder`).
BY_CPU = (
    "embed", "train_step", "precision", "ops", "projected_lstm", "threads", "embed_file", "embed_parts", "exact_shards",
)  # fmt: skip

CASES = {
    "embed": "sentences to ELMo vectors, the original architecture, against AllenNLP 2.10.1",
    "precision": "vectors of a trained model at each precision beside float32's, its perplexity, a tagger's accuracy",
    "projected_lstm": "one layer, both directions, beside torch.nn.LSTM and its int8",
    "threads": "the biLM's layers on one thread and two, alone and beside busy processes",
    "train_step": "one step of pretraining against plain torch with a dense update of the softmax table",
    "vocabulary": "one step of pretraining with 10,000 words and with 800,000",
    "output_layers": "the preset tiny with each loss and with word ids: time of a step, exact held-out perplexity",
    "pretrain": "twenty minutes of the preset small on real text, beside plain torch with the same batches",
    "limits": "what one core can do at most: float32 products, reading weights",
    "embed_file": "elmo-fast embed on a long file: memory over time, one thread and two",
    "embed_parts": "elmo-fast embed in parts: one process and two beside one that writes one file",
    "text": "words to character ids",
    "corpus": "text to numbers, and numbers to batches",
    "task": "an epoch of a tagger over a frozen ELMo from the disk cache, against static vectors of the same width",
    "static_files": "word vectors read and written, analogies, the nearest of a million token vectors, beside gensim",
    "demo": "make demo: held-out perplexity before and after",
    "static": "static vectors: counting pairs, GloVe's training, text of vectors written and read",
    "static_quality": "GloVe beside gensim's skip-gram on the same text: analogies and similarity, three seeds each",
    "scaling": "bytes that a step exchanges between processes; seconds of a step predicted for many GPUs",
    "exact_shards": "a step of pretraining with exact shards, in one process and two, beside the step without",
    "ops": "every op, native against reference",
}
