"""`elmo-fast`, started by torchrun, of which the last process kills itself once: dying_worker.py STEP WORD ..."""

import os
import sys

from elmo_fast.cli.main import main
from tests.pretrain.processes import dying_at

if __name__ == "__main__":
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        dying_at(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
