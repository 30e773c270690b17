"""How a run starts: the plan, the weights that it starts from, or the checkpoint that it resumes."""
