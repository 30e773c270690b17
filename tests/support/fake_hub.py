"""huggingface_hub without a network: repositories in memory, and the few functions that elmo_fast calls."""

import fnmatch
import pathlib
import sys
import types


class NoAnswer(Exception):
    """Error of huggingface_hub or its library: no OSError."""


class FakeHub(types.ModuleType):
    """The module huggingface_hub.

    repos: name -> {path: bytes}; private: the names of private ones; calls: (function, positional, by name) of every
    call, for the test that holds them to the real signatures.
    """

    def __init__(self, cache):
        super().__init__("huggingface_hub")
        self.repos, self.private, self.calls, self.cache = {}, set(), [], pathlib.Path(cache)

    def install(self, monkeypatch):
        """Puts the fake in the place of the module until the test ends."""
        monkeypatch.setitem(sys.modules, "huggingface_hub", self)
        return self

    def snapshot_download(
        self, repo_id, *, revision=None, local_dir=None, allow_patterns=None, ignore_patterns=None, **rest
    ):
        arguments = {"revision": revision, "local_dir": local_dir, "allow_patterns": allow_patterns}
        self.calls.append(("snapshot_download", (repo_id,), {**arguments, "ignore_patterns": ignore_patterns, **rest}))
        if repo_id not in self.repos:
            raise NoAnswer("404 Client Error.\nRepository Not Found")
        folder = pathlib.Path(local_dir or self.cache / repo_id / (revision or "main"))
        for path, content in self.repos[repo_id].items():
            if matches(path, allow_patterns) and not matches(path, ignore_patterns):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
        return str(folder)

    def create_repo(self, repo_id, *, private=None, exist_ok=False, **rest):
        self.calls.append(("create_repo", (repo_id,), {"private": private, "exist_ok": exist_ok, **rest}))
        if repo_id in self.repos and not exist_ok:
            raise NoAnswer("409 Client Error: Conflict")
        if repo_id not in self.repos and private:
            self.private.add(repo_id)
        self.repos.setdefault(repo_id, {})
        return f"https://hub.test/{repo_id}"

    def repo_info(self, repo_id, **rest):
        self.calls.append(("repo_info", (repo_id,), rest))
        return types.SimpleNamespace(private=repo_id in self.private)

    def upload_folder(self, *, repo_id, folder_path, delete_patterns=None, **rest):
        arguments = {"repo_id": repo_id, "folder_path": folder_path, "delete_patterns": delete_patterns, **rest}
        self.calls.append(("upload_folder", (), arguments))
        folder, repo = pathlib.Path(folder_path), self.repos[repo_id]
        for path in [path for path in repo if matches(path, delete_patterns)]:
            del repo[path]
        for file in folder.rglob("*"):
            if file.is_file():
                repo[file.relative_to(folder).as_posix()] = file.read_bytes()


def matches(path, patterns):
    """As in huggingface_hub, `*` also matches /."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns or [])
