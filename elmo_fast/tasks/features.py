"""What a tagger or classifier reads of a word: static vectors, its characters, mixes of ELMo's layers."""

from elmo_fast.tasks.character_features import CharacterFeatures
from elmo_fast.tasks.elmo_features import L2_KINDS, ElmoFeatures, load_bilm
from elmo_fast.tasks.static_features import StaticFeatures

__all__ = ["L2_KINDS", "CharacterFeatures", "ElmoFeatures", "StaticFeatures", "load_bilm"]
