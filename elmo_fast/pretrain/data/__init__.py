"""The text of a run: its corpora, whether it is still the same text, and what the model reads of a word."""
