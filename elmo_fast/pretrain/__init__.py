"""Pretraining a bidirectional language model, in one process or many.

`run.pretrain(config)` is a whole run, `dry_run.dry_run(config)` a few steps of one: `run.Run` is its folder, `trainer`
its loop, `step` one update of the weights, `corpora` its text, `evaluate` its perplexity, `log` and `metrics` its
reports. Nothing is imported here, so that the command line can show its help without torch.
"""
