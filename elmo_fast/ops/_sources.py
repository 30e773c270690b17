"""What the extension of a clone was built from: compares it with the files that are there now.

setup.py runs this file by its path, where neither torch nor elmo_fast can be imported.
"""

import hashlib
import pathlib

DIGEST = "elmo_fast/_C.digest"  # written by setup.py when it has built an extension in place


def digest_of_sources(root: pathlib.Path) -> str:
    """Return the SHA-256 of the names and contents of csrc/, CMakeLists.txt and the ops' schemas."""
    digest = hashlib.sha256()
    files = sorted(path for path in root.glob("csrc/**/*") if path.is_file())
    for path in (root / "CMakeLists.txt", root / "elmo_fast" / "ops" / "_schemas.py", *files):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def why_stale(root: pathlib.Path) -> str | None:
    """Explain that the extension in a clone was built from other sources than it has now, or return None."""
    if not (root / "CMakeLists.txt").is_file() or not list(root.glob("elmo_fast/_C*.so")):
        return None
    digest = root / DIGEST
    if digest.is_file() and digest.read_text(encoding="utf-8") == digest_of_sources(root):
        return None
    return "elmo_fast/_C.*.so was not built from csrc/, CMakeLists.txt and elmo_fast/ops/_schemas.py as they are now"
