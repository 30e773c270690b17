"""Run by every Python process that `python -m tests.standin` starts, and by their children."""

import os

if os.environ.get("STANDIN"):
    import importlib.util
    import pathlib
    import sys

    # Not as tests.standin: other folders named tests may be on the path.
    here = pathlib.Path(__file__).parent
    spec = importlib.util.spec_from_file_location(
        "elmo_fast_standin", here / "__init__.py", submodule_search_locations=[str(here)]
    )
    standin = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(standin)
    standin.install()
