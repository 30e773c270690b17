"""Pretraining a bidirectional language model: configuration, streams, optimiser, trainer, evaluation, in one process.

`run.pretrain(config)` is a whole run; `trainer.Trainer` its loop; `step.train_step` one update. Nothing is imported
here, so that the command line can show its help without torch.
"""
