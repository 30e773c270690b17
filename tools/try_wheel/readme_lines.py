"""python readme_lines.py CHECKOUT: runs the lines of its README.md with the installed package; for try_wheel.py."""

import os
import pathlib
import sys

import elmo_fast


def main() -> None:
    """In the current folder, which is empty; AssertionError where a block prints something else than the page says."""
    assert "site-packages" in elmo_fast.__file__, f"{elmo_fast.__file__} is not the wheel's"
    checkout, folder = pathlib.Path(sys.argv[1]), pathlib.Path.cwd()
    sys.path.append(str(checkout))
    from tests import snippets, weights

    snippets.environment = lambda: dict(os.environ)  # no checkout, as tests have it
    weights.make_weights(
        folder, cell=1024, proj=128, filters=snippets.ORIGINAL_FILTERS, char_dim=16, n_highway=1, scale=0.5
    )
    snippets.check((checkout / "README.md").read_text(encoding="utf-8"), "README.md", folder)


if __name__ == "__main__":
    main()
