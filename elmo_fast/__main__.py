"""`python -m elmo_fast` is the same as `elmo-fast`."""

from elmo_fast.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
