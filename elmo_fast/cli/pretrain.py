"""`elmo-fast pretrain`: trains a bidirectional language model on your own text."""

import logging
import os
import sys
from dataclasses import dataclass

from elmo_fast.cli import check
from elmo_fast.cli._common import logger, set_up
from elmo_fast.cli._parser import Command, Parser, flag
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.config import SECTIONS, PretrainConfig, preset_file, presets

# bilm-tf's and AllenNLP's other names for an option.
_OTHER_NAMES = {"save_dir": ["-s", "--serialization_dir"]}


@dataclass(kw_only=True)
class _PretrainOptions(Command):
    """Options of `pretrain` besides the fields of its configuration."""

    device: str = "auto"
    threads: int | None = None
    dry_run: bool = flag()
    """report weights, memory, disk, steps, and hours at the speed of a few steps measured here; write nothing"""
    n_gpus: int | None = None
    """bilm-tf's flag: prints the torchrun command to use instead"""

    @classmethod
    def add_to(cls, parser: Parser) -> None:
        """Make every field of the configuration an option; --config takes a file or the name of a preset."""
        parser.presets = {name: str(preset_file(name)) for name in presets()}
        parser._option_string_actions["--config"].help = "name of a preset, or YAML, JSON or TOML file of these options"
        parser.description = f"{parser.description} Start from a preset: --config {' | '.join(presets())}."
        super().add_to(parser)
        for name, section in SECTIONS.items():
            parser.fields(section, name, _OTHER_NAMES)


def run_pretrain(options: _PretrainOptions) -> int:
    """Train a bidirectional language model."""
    from elmo_fast.pretrain.dry_run import dry_run
    from elmo_fast.pretrain.run import pretrain

    if options.n_gpus is not None and options.n_gpus > 1 and "WORLD_SIZE" not in os.environ:
        raise ElmoFastError(
            "--n_gpus: torchrun starts the processes, one per GPU: torchrun --standalone "
            f"--nproc-per-node={options.n_gpus} -m elmo_fast pretrain --device cuda ... (--batch_size counts the "
            f"rows of all GPUs together: bilm-tf's 128 rows on each are --batch_size {128 * options.n_gpus})"
        )
    device = set_up(options)
    config = PretrainConfig.from_flat(options.settings)
    if options.dry_run:
        dry_run(config, report=logger().info, device=device)
        return 0
    if os.environ.get("RANK", "0") == "0":
        check.remind(device)
    done = pretrain(config, report=logger().info, device=device)
    interrupted = done.stopped_by == "interrupt"
    if not interrupted and os.environ.get("RANK", "0") == "0":
        logger().info(f"next   elmo-fast eval --save_dir {done.folder} --test_prefix FILES")
        logger().info(f"       elmo-fast embed IN.txt OUT.hdf5 --average --model {done.folder}")
        logger().info(f"       elmo-fast plot {done.folder}")
    # Ctrl-C is 130, SIGTERM 143; either way everything is saved.
    status = 128 + done.signal if interrupted else 0
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Everything is written. A gloo thread that wakes up while Python shuts down would abort the process, and
        # torchrun would consider a successful run failed.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
