"""torch.nn.LSTM on the kernels of the projected LSTM: one changed import."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules._loading import check_settings
from elmo_fast.modules.projected_lstm import torch_weights
from elmo_fast.op_choices import Backend, InferencePrecision
from elmo_fast.ops import PackedWeights
from elmo_fast.ops._dispatch import warn_once

_OPTIONS = "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size"


class LSTM(nn.LSTM):
    """torch.nn.LSTM, with its constructor, call, parameters and state_dict, computed by elmo_fast.ops.projected_lstm.

        i, f, g, o = W_ih x_t + b_ih + W_hh h + b_hh;  c = σ(f) c + σ(i) tanh(g);  h = W_hr (σ(o) tanh(c))

    Where no kernel serves (16-bit parameters, a device that is neither a CPU nor a CUDA GPU), torch's own runs, after a
    PerformanceWarning. Unlike torch's, dropout between layers draws other masks from the same seed, results under
    torch.autocast are float32, and there are no second derivatives. torch.compile leaves any torch.nn.LSTM out of its
    graphs, and this one too, unless torch._dynamo.config.allow_rnn is True.

    Args:
        input_size: I.
        hidden_size: H, width of the cells, and of the output where proj_size is 0.
        num_layers, bias, batch_first, dropout, bidirectional, device, dtype: as torch.nn.LSTM's.
        proj_size: D, width of the projected output; 0: no projection (D = H).
        precision, backend: as elmo_fast.ops.projected_lstm's.

    Raises: what torch.nn.LSTM raises; ElmoFastError: an unknown precision or backend.

    Source: torch.nn.LSTM; Sak et al. 2014.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
        *,
        precision: InferencePrecision = "float32",
        backend: Backend = "auto",
    ) -> None:
        check_settings(precision, backend)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype
        )
        self.precision, self.backend = precision, backend
        self._packed = [PackedWeights() for _ in range(num_layers)]

    @classmethod
    def from_torch(
        cls, module: nn.LSTM, *, precision: InferencePrecision = "float32", backend: Backend = "auto"
    ) -> "LSTM":
        """Return an LSTM that has the parameters of `module`: the same objects, so an optimizer of them stays right.

        Raises: ElmoFastError: `module` computes a parameter from others (parametrizations, pruning).
        """
        options = {name: getattr(module, name) for name in _OPTIONS}
        own = cls(**options, device="meta", precision=precision, backend=backend)
        theirs = dict(module.named_parameters())
        if theirs.keys() != {name for name, _ in own.named_parameters()}:
            raise ElmoFastError(
                "LSTM.from_torch: module must have the parameters of torch.nn.LSTM; remove its parametrizations first "
                f"(torch.nn.utils.parametrize.remove_parametrizations); got {', '.join(theirs)}"
            )
        for name, parameter in theirs.items():
            setattr(own, name, parameter)
        return own.train(module.training)

    def _why_not(self, x: Tensor) -> str | None:
        """Explain in one sentence why torch's own LSTM must run, or return None."""
        if self.backend != "auto" or torch.compiler.is_compiling():
            return None
        half = x.dtype in (torch.float16, torch.bfloat16)
        dtype = torch.float32 if half and torch.is_autocast_enabled(x.device.type) else x.dtype
        try:
            choice = ops.explain("projected_lstm", x.device, dtype, self.precision)
        except ElmoFastError as error:
            return str(error)
        return "; ".join(choice.refusals.values()) if choice.backend == "reference" else None

    def forward(  # type: ignore[override]
        self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        """Run over a batch of sequences.

        Args:
            input: [T, B, I]; with batch_first [B, T, I]; [T, I] of one sequence; or a PackedSequence.
            hx: (h [L * R, B, D], c [L * R, B, H]) to start from, R directions; without B for one sequence; None: zeros.

        Returns:
            (the top layer's outputs, as `input` with R * D in place of I, (h, c) as `hx` after the last step).
        """
        packed = isinstance(input, PackedSequence)
        data = input.data if isinstance(input, PackedSequence) else input
        why, dims = self._why_not(data), 3 if packed else data.dim()
        if why is not None:
            warn_once(f"LSTM: using the slower backend 'torch.nn.LSTM', because {why}")
        # torch has its own rules for empty batches, and its own errors.
        odd = not data.numel() or dims not in (2, 3) or (hx is not None and {each.dim() for each in hx} != {dims})
        if why is not None or odd:
            return super().forward(input, hx)
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if dims == 2:
            input = input.unsqueeze(0 if self.batch_first else 1)
            hx = hx and (hx[0][:, None], hx[1][:, None])
        self._check(input, hx, None)
        y, (h, c) = self._run(input if self.batch_first else input.transpose(0, 1), None, hx)
        if dims == 2:
            return y[0], (h[:, 0], c[:, 0])
        return y if self.batch_first else y.transpose(0, 1), (h, c)

    def _forward_packed(
        self, input: PackedSequence, hx: tuple[Tensor, Tensor] | None
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]:
        data, sizes, order, back = input
        hx = hx and self.permute_hidden(hx, order)
        self._check(data, hx, sizes)
        x, lengths = pad_packed_sequence(PackedSequence(data, sizes), batch_first=True)
        y, state = self._run(x, lengths.to(x.device), hx)
        y = pack_padded_sequence(y, lengths, batch_first=True).data
        return PackedSequence(y, sizes, order, back), self.permute_hidden(state, back)

    def _check(self, x: Tensor, hx: tuple[Tensor, Tensor] | None, sizes: Tensor | None) -> None:
        """Raise what torch raises for shapes that do not fit."""
        if hx is None:
            self.check_input(x, sizes)
        else:
            self.check_forward_args(x, hx, sizes)

    def _run(
        self, x: Tensor, lengths: Tensor | None, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run all layers over x [B, T, I], lengths [B]; state and results as in forward."""
        directions, states = 1 + self.bidirectional, []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = F.dropout(x, self.dropout)
            rows = slice(layer * directions, (layer + 1) * directions)
            y, after = ops.projected_lstm(
                [x] * directions,
                [torch_weights(self, layer, reverse) for reverse in (False, True)[:directions]],
                lengths,
                None if state is None else (state[0][rows], state[1][rows]),
                reverse=(False, True)[:directions],
                cell_clip=None,
                projection_clip=None,
                precision=self.precision,
                packed=self._packed[layer],
                backend=self.backend,
            )
            x = torch.cat(list(y.unbind(0)), dim=2)
            states.append(after)
        h, c = (torch.cat(each) for each in zip(*states, strict=True))
        return x, (h, c)

    def extra_repr(self) -> str:
        """Name the sizes as torch does, and what is not the default of this library."""
        own = {"precision": "float32", "backend": "auto"}
        more = [f"{name}={getattr(self, name)!r}" for name, usual in own.items() if getattr(self, name) != usual]
        return ", ".join([super().extra_repr(), *more])
