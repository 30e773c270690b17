"""Removes files as NFS does: one that is open stays in its folder under another name until it is closed."""

import contextlib
import os


def remove_as_nfs(monkeypatch):
    """Make files opened with os.open, as locks are, outlive their removal: `rmdir` of the folder fails, as on NFS."""
    hidden, unlink, close = {}, os.unlink, os.close

    def unlink_or_hide(path, *, dir_fd=None):
        status = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        if not _is_open(status):
            return unlink(path, dir_fd=dir_fd)
        folder = os.path.dirname(os.path.abspath(path)) if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
        hidden[status.st_dev, status.st_ino] = os.path.join(folder, f".nfs{status.st_ino:016x}")
        os.rename(path, hidden[status.st_dev, status.st_ino], src_dir_fd=dir_fd)

    def closed(handle):
        status = os.fstat(handle)
        close(handle)
        if not _is_open(status) and (left := hidden.pop((status.st_dev, status.st_ino), None)):
            unlink(left)

    monkeypatch.setattr(os, "unlink", unlink_or_hide)
    monkeypatch.setattr(os, "close", closed)


def _is_open(status):
    for handle in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed, as that of the listing itself
            if os.path.samestat(os.stat(f"/proc/self/fd/{handle}"), status):
                return True
    return False
