"""Does ELMo help on this data: the paper's tables and figures on a small scale, from many short training runs."""
