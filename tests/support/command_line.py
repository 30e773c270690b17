"""The command line within this process: a process of its own costs two seconds, and proves more only where it ends."""

import contextlib
import io
import os
import subprocess
import sys

from elmo_fast.cli.main import main
from tests.torture.children import fork


def elmo_fast(*words):
    """Return status and output of `elmo-fast WORDS`, as subprocess.run would."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            status = main([str(word) for word in words])
        except SystemExit as leaving:  # a parser's
            status = leaving.code
    return subprocess.CompletedProcess(words, status, out.getvalue(), error.getvalue())


def forked(*words, error, first=lambda: None):
    """Return the id of a process that does `first`, and then is `elmo-fast WORDS`; its standard error is a file.

    Forked from this one, which has imported all. --device cpu: a child cannot use a GPU that its parent used.
    """

    def work():
        with open(error, "w", buffering=1) as sys.stderr:
            os.dup2(sys.stderr.fileno(), 2)
            first()
            try:
                status = main([str(word) for word in words])
            except SystemExit as leaving:
                status = leaving.code
        os._exit(status)

    return fork(work)
