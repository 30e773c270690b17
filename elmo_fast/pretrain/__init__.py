"""Pretraining a bidirectional language model, in one process or many.

`run.pretrain(config)` is a whole run; `loop.train` its loop, `trainer.Trainer` how it stands, `step.Step` one
update. Nothing is imported here, so that the command line can show its help without torch.
"""
