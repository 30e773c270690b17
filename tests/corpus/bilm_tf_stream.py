"""bilm-tf's stream of one direction, one sentence and one place at a time: what `corpus.streams.Stream` must equal.

A sentence is `<S> w ... </S>`: inputs are all of it but the last, targets all but the first. Rows are filled in order,
and one that has come to the end of its sentence takes the next one that no row has taken. The backward model reads
sentences reversed, `</S> ... w <S>`. (Source: bilm-tf, bilm/data.py, _get_batch and LMDataset.)
"""


def windows(sentences, rows, steps, *, reverse, first="<S>", last="</S>"):
    """Yields (inputs, targets) of one pass over `sentences`, each a list per row of at most `steps` words."""
    if reverse:
        first, last = last, first
    waiting = iter([[first, *(sentence[::-1] if reverse else sentence), last] for sentence in sentences])
    rests = [[] for _ in range(rows)]
    while True:
        inputs, targets = [[] for _ in range(rows)], [[] for _ in range(rows)]
        for row in range(rows):
            while len(inputs[row]) < steps:
                if len(rests[row]) <= 1:
                    rests[row] = next(waiting, None)
                    if rests[row] is None:
                        rests[row] = []
                        break
                count = min(len(rests[row]) - 1, steps - len(inputs[row]))
                inputs[row] += rests[row][:count]
                targets[row] += rests[row][1 : count + 1]
                rests[row] = rests[row][count:]
        if not any(inputs):
            return
        yield inputs, targets
