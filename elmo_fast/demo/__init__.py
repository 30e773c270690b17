"""`python -m elmo_fast.demo`: pretrains a tiny ELMo on Python's own documentation and looks at what it learned."""
