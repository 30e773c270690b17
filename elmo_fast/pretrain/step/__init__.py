"""One step of training: the losses, their gradient, its exchange between processes, the clip, the update."""
