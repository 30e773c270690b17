"""Runs a command on two hosts: namespaces of this machine with their own network, host name and process numbers.

    python tools/two_hosts.py torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=host1:29400 -m elmo_fast ...

The hosts are host1 (10.99.0.1) and host2 (10.99.0.2), and reach each other and nothing else; the command finds its
number, 0 or 1, in $HOST_NUMBER. `ip -n host2 link set eth0 down` cuts the link. Needs root, iproute2 and util-linux.
Ends with the larger of the two exit statuses.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

HOSTS = ("host1", "host2")


def ip(*words: str) -> None:
    """Runs `ip`."""
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def hosts() -> Iterator[None]:
    """The two network namespaces and the link between them, removed at the end."""
    made = []
    try:
        for host in HOSTS:
            ip("netns", "add", host)
            made.append(host)
        ip("-n", HOSTS[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", HOSTS[1])
        for number, host in enumerate(HOSTS, 1):
            ip("-n", host, "addr", "add", f"10.99.0.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", host, "link", "set", device, "up")
        yield
    finally:
        for host in made:
            ip("netns", "del", host)


def started(host: str, number: int, names: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """The command on a host. What it has left running ends with it. names: the file that is /etc/hosts there."""
    inside = ["sh", "-c", 'mount --bind "$0" /etc/hosts && hostname "$1" && shift && "$@"', names, host, *command]
    apart = ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
    return subprocess.Popen(
        ["ip", "netns", "exec", host, *apart, *inside], env=os.environ | {"HOST_NUMBER": str(number)}
    )


def main() -> int:
    """Runs the command of sys.argv on both hosts."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    with hosts(), tempfile.NamedTemporaryFile("w", suffix=".hosts") as names:
        names.write("127.0.0.1 localhost\n10.99.0.1 host1\n10.99.0.2 host2\n")
        names.flush()
        running = [started(host, number, names.name, sys.argv[1:]) for number, host in enumerate(HOSTS)]
        return max(abs(process.wait()) for process in running)


if __name__ == "__main__":
    sys.exit(main())
