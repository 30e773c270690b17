"""The random models of tests/modules."""

from tests.modules.conftest import files, native_encoder

__all__ = ["files", "native_encoder"]
