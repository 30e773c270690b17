"""Pretraining a bidirectional language model, in one process or many.

`run.pretrain(config)` is a whole run: `start` creates or resumes it, `run.train` is its loop, `trainer` its state,
`step/` one update of the weights, `corpora` its text, `evaluate` its perplexity, `log` and `metrics` its reports.
Nothing is imported here, so that the command line can show its help without torch.
"""
