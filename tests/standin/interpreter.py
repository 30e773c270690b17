"""Triton's interpreter on the stand-in: it reads tensors where they are, and its launches can be captured."""

import ctypes
import functools
import threading

from elmo_fast_standin import cuda

raised = []  # by a kernel in a replay, which passes through C


def change(interpreter):
    """Change the module triton.runtime.interpreter, which would copy a device's tensors to the CPU and back."""
    executor, lock = interpreter.GridExecutor, threading.RLock()
    interpreted = executor.__call__

    def run(*arguments, **options):
        with lock:  # the interpreter changes triton.language while it runs
            return interpreted(*arguments, **options)

    def twins(argument):
        import torch

        if isinstance(argument, tuple):
            return interpreter._tuple_create(argument, map(twins, argument))
        return torch.ops.standin.twin(argument) if isinstance(argument, torch.Tensor) and argument.is_cuda else argument

    def twins_of_all(self, arguments, options):
        return [twins(each) for each in arguments], {name: twins(each) for name, each in options.items()}

    @functools.wraps(interpreted)
    def launch(self, *arguments, **options):
        import torch

        flat = [each for a in arguments for each in (a if isinstance(a, tuple) else (a,))]
        tensors = [each for each in flat if isinstance(each, torch.Tensor)]
        devices = {tensor.device for tensor in tensors}
        if all(device.type == "cpu" for device in devices):
            return run(self, *arguments, **options)
        if len(devices) > 1:
            raise ValueError(f"Pointer argument cannot be accessed from Triton (cpu tensor?): {devices}")
        cuda.call("launches", devices.pop().index)
        if torch.cuda.is_current_stream_capturing():
            for tensor in tensors:
                storage = tensor.untyped_storage()
                cuda.call("will_write", ctypes.c_void_p(storage.data_ptr()), storage.nbytes())
            arguments, options = twins_of_all(self, arguments, options)
            cuda.Graph.active.record(functools.partial(_without_raising, run, self, *arguments, **options))
        return run(self, *arguments, **options)

    executor._init_args_hst, executor._restore_args_dev, executor.__call__ = twins_of_all, lambda *_: None, launch


def _without_raising(run, *arguments, **options):
    try:
        run(*arguments, **options)
    except BaseException as error:  # noqa: BLE001 (the replay raises it)
        raised.append(error)
