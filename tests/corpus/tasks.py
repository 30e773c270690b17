"""Functions for other processes; nothing here imports torch."""

import os
import signal
import sys
import time

from elmo_fast.errors import ElmoFastError


def doubled(number):
    """Twice the number, the small ones last."""
    time.sleep(0.05 * (3 - number))
    return 2 * number


def loaded(name):
    """Return whether a module is loaded, and the process."""
    return name in sys.modules, os.getpid()


def failing(number):
    """Fails for 2 in the user's words."""
    if number == 2:
        raise ElmoFastError("two is too much")
    return number


def killed(number):
    """Ends its process at 2 as the system does when memory runs out."""
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def endless(path):
    """Tells which process it is and does not return."""
    with open(f"{path}.{os.getpid()}", "w"):
        pass
    while True:
        time.sleep(1)
