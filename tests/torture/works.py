"""What is killed, started again until it ends, and compared then."""

import pathlib
from collections.abc import Sequence

UNDISTURBED = "undisturbed"


class Work:
    """One kind of work in a folder: run under a name by some processes, and compared with a run that nothing disturbed.

    share: of the time of an undisturbed run, within which it is killed; counts: of processes.
    """

    share, counts = 1.0, (1,)

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    def run(self, name: str, count: int) -> None:
        """Does the work, in a process of its own."""
        raise NotImplementedError

    def whole(self, name: str) -> str:
        """What is wrong with what a killed run has left; nothing where it is right."""
        return ""

    def differences(self, name: str, sittings: Sequence[tuple[int, int]]) -> list[str]:
        """How what has ended differs from the undisturbed run; sittings: (step begun at, processes) of each."""
        raise NotImplementedError

    def step(self, name: str) -> int:
        """Where a run would go on."""
        return 0
