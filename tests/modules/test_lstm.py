"""elmo_fast.LSTM has torch.nn.LSTM's constructor, calls, numbers, gradients, errors and state_dict."""

import copy
import itertools
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from elmo_fast import LSTM, ProjectedLSTM
from elmo_fast.errors import ElmoFastError, PerformanceWarning
from elmo_fast.ops import explain

OPTIONS = [
    {"num_layers": layers, "bias": bias, "batch_first": first, "bidirectional": both, "proj_size": proj}
    for (layers, proj), bias, first, both in itertools.product(
        ((1, 0), (3, 4)), (True, False), (True, False), (True, False)
    )
]
pytestmark = [
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
    pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN"),  # on the stand-in for a GPU
]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def pair(dtype=torch.float32, device="cpu", **options):
    """torch's LSTM and ours, with equal parameters that each has for itself."""
    torch.manual_seed(0)
    theirs = nn.LSTM(3, 5, **options).to(device, dtype)
    ours = LSTM(3, 5, **options).to(device, dtype)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def state_of(lstm, *batch):
    rows = lstm.num_layers * (1 + lstm.bidirectional)
    sizes = lstm.proj_size or lstm.hidden_size, lstm.hidden_size
    like = lstm.weight_hh_l0
    return tuple(torch.randn(rows, *batch, size).to(like).requires_grad_() for size in sizes)


def results(lstm, given, state, dtype, device):
    """Everything that a call and its backward pass give."""
    given, state = given.to(device, dtype), state and [each.detach().to(device, dtype) for each in state]
    inputs = [given.data if isinstance(given, tuple) else given, *(state or ())]
    for each in inputs:
        each.requires_grad_()
    y, (h, c) = lstm(given, state and tuple(state))
    data = y.data if isinstance(y, tuple) else y
    loss = sum((each * torch.arange(each.numel()).view(each.shape).sin().to(each)).sum() for each in (data, h, c))
    grads = torch.autograd.grad(loss, [*inputs, *lstm.parameters()])
    return [data, h, c, *grads]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_numbers_and_gradients_are_torchs(options, device):
    """A batch, one sequence, and packed sequences in any order; with and without a state to start from."""
    dtype, close = (torch.float64, (1e-9, 1e-12)) if device == "cpu" else (torch.float32, (1e-4, 1e-5))
    theirs, ours = pair(dtype, **options)
    ours.to(device)
    batch = torch.randn(6, 2, 3) if not options["batch_first"] else torch.randn(2, 6, 3)
    packed = pack_sequence([torch.randn(n, 3) for n in (2, 6, 3)], enforce_sorted=False)
    for given, size in ((batch, [2]), (torch.randn(6, 3), []), (packed, [3])):
        for state in (None, state_of(theirs, *size)):
            expected, actual = results(theirs, given, state, dtype, "cpu"), results(ours, given, state, dtype, device)
            for one, other in zip(actual, expected, strict=True):
                torch.testing.assert_close(one.cpu(), other, rtol=close[0], atol=close[1])
    assert ours(packed.to(device, dtype))[0].unsorted_indices.tolist() == packed.unsorted_indices.tolist()


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ((5, 2, 4), None),
        ((5, 2, 3), ((2, 2, 4), (2, 2, 5))),
        ((5, 2, 3), ((2, 5), (2, 5))),
        ((5, 3), ((2, 1, 5), (2, 1, 5))),
    ],
)
def test_errors_are_torchs(given, state):
    theirs, ours = pair(num_layers=2)
    state = state and tuple(map(torch.zeros, state))
    with pytest.raises((RuntimeError, ValueError)) as expected:
        theirs(torch.zeros(given), state)
    with pytest.raises(expected.type) as raised:
        ours(torch.zeros(given), state)
    assert str(raised.value) == str(expected.value)


def test_dropout_acts_between_layers_in_training_alone():
    theirs, ours = pair(num_layers=2, dropout=0.999999)
    x = torch.randn(4, 2, 3)
    bias = copy.deepcopy(theirs).train()
    with torch.no_grad():
        torch.testing.assert_close(ours.train()(x)[0], bias(x)[0])  # nothing passes: biases and states are left
        torch.testing.assert_close(ours.eval()(x)[0], theirs.eval()(x)[0])


def test_parameters_are_those_of_torchs_module():
    """An optimizer that was made before goes on training the new module."""
    theirs = nn.LSTM(3, 5, 2, bidirectional=True, proj_size=4, dropout=0.25, batch_first=True).eval()
    ours = LSTM.from_torch(theirs, precision="bfloat16")
    assert all(a is b for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert (ours.dropout, ours.batch_first, ours.training, ours.precision) == (0.25, True, False, "bfloat16")
    assert isinstance(ours, nn.LSTM)
    assert repr(ours) == repr(theirs)[:-1] + ", precision='bfloat16')"
    nn.utils.parametrize.register_parametrization(theirs, "weight_hh_l0", nn.Identity())
    with pytest.raises(ElmoFastError, match="remove its parametrizations"):
        LSTM.from_torch(theirs)


def test_a_parametrization_of_a_weight_is_seen():
    theirs, ours = pair()
    for lstm in (theirs, ours):
        nn.utils.parametrizations.weight_norm(lstm, "weight_hh_l0")
        with torch.no_grad():
            lstm.parametrizations.weight_hh_l0.original0.mul_(0.5)
    x = torch.randn(4, 2, 3)
    torch.testing.assert_close(ours(x)[0], theirs(x)[0])


def test_what_the_kernels_cannot_do_warns_and_is_torchs():
    """16-bit parameters; the warning says why."""
    theirs, ours = pair(torch.bfloat16)
    x = torch.randn(4, 2, 3).bfloat16()
    with pytest.warns(PerformanceWarning, match=r"LSTM: using the slower backend 'torch.nn.LSTM', because .*bfloat16"):
        actual = ours(x)[0]
    assert torch.equal(actual, theirs(x)[0])


def test_autocast_rounds_the_products():
    _, ours = pair()
    x = torch.randn(4, 2, 3)
    with torch.autocast("cpu", torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)  # of a CPU on which bfloat16 is slow
        actual = ours(x)[0]
    ours.precision = "bfloat16"
    assert torch.equal(actual, ours(x)[0])
    assert actual.dtype == torch.float32


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("proj", [0, 4])
def test_a_projected_lstm_of_torchs_module(proj, reverse):
    """One layer and direction of it; the two biases of torch are one."""
    theirs = nn.LSTM(3, 5, 2, batch_first=True, bidirectional=True, proj_size=proj)
    ours, x = ProjectedLSTM.from_torch(theirs, 0, reverse=reverse), torch.randn(2, 6, 3)
    one = nn.LSTM(3, 5, batch_first=True, bidirectional=True, proj_size=proj)
    one.load_state_dict({name: each for name, each in theirs.state_dict().items() if "_l0" in name})
    width = proj or 5
    expected = one(x)[0][..., width:] if reverse else one(x)[0][..., :width]
    torch.testing.assert_close(ours(x)[0], expected)
    assert (ours.hidden_size, ours.cell_size) == (width, 5)


def test_the_kernels_serve_here():
    """Else everything above would compare torch with itself."""
    assert explain("projected_lstm", "cpu").backend == "native"
    _, ours = pair()
    assert ours._why_not(torch.zeros(1)) is None
