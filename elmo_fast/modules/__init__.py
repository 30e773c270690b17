"""ELMo as torch modules: parameters and state here, arithmetic in elmo_fast.ops.

Parameters have AllenNLP's names, so state_dicts are exchangeable with AllenNLP. `elmo_fast` has the public ones.
"""
