"""The command line within this process: a process of its own costs two seconds, and proves more only where it ends."""

import contextlib
import io
import subprocess

from elmo_fast.cli.main import main


def elmo_fast(*words):
    """Return status and output of `elmo-fast WORDS`, as subprocess.run would."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            status = main([str(word) for word in words])
        except SystemExit as leaving:  # a parser's
            status = leaving.code
    return subprocess.CompletedProcess(words, status, out.getvalue(), error.getvalue())
