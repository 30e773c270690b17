"""`--ray`: a cluster of two machines, one of which is lost, gives the bytes of one process."""

import os
import subprocess
import sys
import time
import warnings

import pytest

from elmo_fast._runtime import cluster
from elmo_fast.errors import ElmoFastError
from tests.embed.parts.conftest import FORM, embed
from tests.support.command_line import elmo_fast


def refuse(task):
    raise ElmoFastError(f"task {task} is refused")


@pytest.fixture(scope="module")
def machines():
    """A head and, in a list, one more node, each of one CPU."""
    pytest.importorskip("ray")
    if "ELMO_FAST_RAY" not in os.environ:
        pytest.skip("a cluster takes a minute: `make torture`, or ELMO_FAST_RAY=1, starts one")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        both = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        both.nodes = [both.add_node(num_cpus=1)]
        yield both
        both.shutdown()


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_lost_machine_changes_no_byte(machines, place, tmp_path):
    """The second node goes when the first part has appeared; prepare and an error after it."""
    address, folder = machines.address, tmp_path / "out"
    words = ["embed", place / "in.txt", folder, "--model", place / "model", *FORM, "--ray", address]
    embedding = subprocess.Popen([sys.executable, "-m", "elmo_fast", *words])  # Ray cannot be forked
    while embedding.poll() is None and not list(folder.glob("part-*")):
        time.sleep(0.02)
    machines.remove_node(machines.nodes.pop())
    assert embedding.wait(120) == 0
    done = elmo_fast("merge", folder, tmp_path / "merged", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "merged").read_bytes() == (place / "alone.hdf5").read_bytes()

    machines.add_node(num_cpus=1)
    (tmp_path / "text").mkdir()
    for number in range(3):
        (tmp_path / "text" / f"{number}.txt").write_text(f"a b c\nword{number} a\n" * 5)
    for name, more in (("alone", ["--processes", "1"]), ("shared", ["--ray", address])):
        done = elmo_fast("prepare", "--train_prefix", tmp_path / "text", "--out_dir", tmp_path / name, "-q", *more)
        assert done.returncode == 0, done.stderr
    one, other = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("alone", "shared"))
    assert one == other

    with cluster.connected(address, "the test") as ray, pytest.raises(ElmoFastError, match="task 1 is refused"):
        list(cluster.results_in_order(ray, refuse, [1, 2]))


def test_a_cluster_that_is_lost_is_an_error(monkeypatch):
    """The error that Ray raises when the raylet of this machine is killed."""
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "init", lambda **_: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    message = r"ray: the cluster at 'auto' was lost \(The task's local raylet died.*\); when it runs again"
    with pytest.raises(ElmoFastError, match=message), cluster.connected("auto", "the test"):
        raise ray.exceptions.LocalRayletDiedError


def test_an_address_without_a_cluster_is_an_error(place, tmp_path):
    pytest.importorskip("ray")
    done = embed(place, tmp_path / "out", "--ray", "127.0.0.1:1")
    assert done.returncode == 2
    assert "no cluster of Ray at '127.0.0.1:1'" in done.stderr
    assert "--ray divides the work itself" in embed(place, tmp_path / "out", "--ray", "auto", "--shard", "0/2").stderr
