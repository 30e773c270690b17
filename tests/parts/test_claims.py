"""Claims: one process at a time; a dead one's are taken over, a living one's are not."""

import errno
import json
import os
import signal
import threading
import time

import pytest

from elmo_fast.parts import claims as module
from elmo_fast.parts.claims import CLAIMS, Claims
from tests.pretrain.killed_worker import in_a_child

NAME = "part-00000"


@pytest.fixture
def claims(tmp_path):
    with Claims(tmp_path) as claims:
        yield claims


def held(claims, name=NAME):
    with claims.claimed(name) as held:
        return held


def claim_of(tmp_path, **owner):
    """A claim of another process."""
    told = {"host": "h", "system": "", "process": 1, "began": "1", "mark": "m", "beat": 0, "tokens": 0, **owner}
    (tmp_path / CLAIMS / NAME).write_text(json.dumps(told))


def test_one_of_many_holds_a_claim_and_gives_it_back(tmp_path, claims):
    with Claims(tmp_path) as other:
        with claims.claimed(NAME) as first:
            assert first
            assert not held(other)
            assert held(other, "part-00001")
        assert held(other)
    assert not (tmp_path / CLAIMS).exists()


def test_of_many_at_once_one_holds_it(tmp_path):
    found, gate = [], threading.Barrier(8)

    def one():
        with Claims(tmp_path) as claims:
            gate.wait()
            with claims.claimed(NAME) as mine:
                found.append(mine)
                gate.wait()

    threads = [threading.Thread(target=one) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(found) == [False] * 7 + [True]


def test_the_claim_of_a_killed_process_of_this_machine_is_taken_at_once(tmp_path, claims):
    def claims_and_waits():
        with Claims(tmp_path) as theirs, theirs.claimed(NAME):
            time.sleep(60)

    child = in_a_child(claims_and_waits)
    while not (tmp_path / CLAIMS / NAME).exists() or not (tmp_path / CLAIMS / NAME).read_bytes():
        time.sleep(0.01)
    assert not held(claims)
    os.kill(child, signal.SIGKILL)
    while module._began(child) is not None:
        time.sleep(0.01)
    assert held(claims)  # not waited for yet
    os.waitpid(child, 0)


def test_another_process_of_the_same_number_does_not_hold_it(tmp_path, claims):
    """Numbers are used again: the claim also says when its process started."""
    mine = {"system": module._system(), "process": os.getpid(), "began": module._began(os.getpid())}
    claim_of(tmp_path, **mine)
    assert not held(claims)
    claim_of(tmp_path, **mine | {"began": "1"})
    assert held(claims)


def test_numbers_of_processes_are_not_compared_where_proc_shows_those_of_another_namespace(tmp_path, monkeypatch):
    """`unshare --pid` without --mount-proc: the number is 4 here, and 4 in /proc is a process that never ends."""
    monkeypatch.setattr(module.os, "getpid", lambda: 4)
    with Claims(tmp_path) as claims, claims.claimed(NAME):
        assert json.loads((tmp_path / CLAIMS / NAME).read_bytes())["system"] == ""
        assert not held(claims)


def test_other_machines_are_given_up_after_patience_without_a_beat(tmp_path, claims, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.15)
    for beat in range(3):
        claim_of(tmp_path, system="another", beat=beat)
        assert not held(claims)
        time.sleep(0.1)
        assert not held(claims)
    time.sleep(0.2)
    assert held(claims)
    (tmp_path / CLAIMS / NAME).write_bytes(b"")  # its process was killed before it wrote it, or just creates it
    assert not held(claims)
    time.sleep(0.2)
    assert held(claims)


def test_a_claim_survives_that_another_process_removes_the_folder_and_a_full_disk_leaves_none(
    tmp_path, claims, monkeypatch
):
    opened = os.open

    def removed_first(path, *more):
        monkeypatch.setattr(module.os, "open", opened)
        Claims(tmp_path).remove_folder()
        return opened(path, *more)

    monkeypatch.setattr(module.os, "open", removed_first)
    assert held(claims)
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(module, "_text", lambda told: (_ for _ in ()).throw(full))
        with pytest.raises(OSError, match=rf"No space left on device: .*{NAME}"):
            held(claims)
    assert held(claims)


def test_beats_change_the_claim_and_tell_what_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BEAT", 0.02)
    with Claims(tmp_path) as claims, claims.claimed(NAME):
        path, seen = tmp_path / CLAIMS / NAME, set()
        claims.tell(NAME, 42)
        while len(seen) < 4:
            seen.add(json.loads(path.read_bytes() or b"{}").get("beat"))
        assert Claims(tmp_path).tokens() == {NAME: 42}
        claim_of(tmp_path, mark="taken over")
        time.sleep(0.1)
        assert json.loads(path.read_bytes())["mark"] == "taken over"
    assert path.exists()


def test_a_new_claim_is_not_cleared_in_the_place_of_an_old_one(tmp_path, claims, monkeypatch):
    """Between the look at a dead process's claim and its removal another process may have taken it."""
    monkeypatch.setattr(claims, "_is_abandoned", lambda name, content: claim_of(tmp_path, mark="new") is None)
    claim_of(tmp_path, mark="old")
    assert not held(claims)
    assert os.listdir(tmp_path / CLAIMS) == [NAME]
    assert json.loads((tmp_path / CLAIMS / NAME).read_bytes())["mark"] == "new"
