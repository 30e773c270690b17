"""Pretraining a bidirectional language model, in one process or many.

`run.pretrain(config)` is a whole run: `start/` makes or resumes it, `loop.train` is its loop, `trainer` its state,
`step/` one update of the weights, `data/` its text, `evaluate` its perplexity, `log/` its reports. Nothing is imported
here, so that the command line can show its help without torch.
"""
