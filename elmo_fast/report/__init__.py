"""Does ELMo help on this data: the paper's tables and figures in small, from many short training runs."""
