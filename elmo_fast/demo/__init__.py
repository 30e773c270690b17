"""`python -m elmo_fast.demo`: pretrains a tiny ELMo on Python's own documentation and shows what it learned."""
