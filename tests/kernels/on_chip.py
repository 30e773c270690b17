"""What Triton makes of the persistent scan's time loop: which arguments it reads there, and in which order.

The arguments read before the loop, the loop's events (reads by argument, products, arrivals, waits), those of its reads
that may come from the L1, and whether the launch is a cooperative one. A change to this file makes every row of the
golden tables stale.
"""

import re

_DEFINED = re.compile(r"^\s*(%\w+)(?::\d+)? = (.*)")
_PRODUCT = re.compile(r"warp_group_dot |tc_gen5_mma ")
_EVENTS = (
    (re.compile(r"tt\.atomic_rmw add, release, gpu"), "arrive"),
    (re.compile(r"tt\.atomic_rmw add, acquire, gpu"), "wait"),
    (_PRODUCT, "product"),
)
EXCHANGED = ("h", "hidden", "parts")


def story(ttgir, arguments):
    """{"before": [...], "within": [...], "through_l1": [...]} of a kernel in Triton's GPU dialect."""
    lines = [line.split(" loc(")[0] for line in ttgir.splitlines()]
    defined = {found[1]: found[2] for line in lines if (found := _DEFINED.match(line))}
    for line in lines:  # what a loop carries is followed to what it starts with
        for carried, start in re.findall(r"(%\w+) = (%\w+)(?=[,)#])", line.partition("iter_args(")[2]):
            defined.setdefault(carried, start)
    product = next(i for i, line in enumerate(lines) if _PRODUCT.search(line))
    first = max(i for i in range(product) if "scf.for" in lines[i])
    indent = re.match(r"\s*", lines[first])[0]
    last = next(i for i in range(first + 1, len(lines)) if lines[i].startswith(indent + "}"))

    def read(line):
        """The argument that a load's pointer is made of: an operation's first operand is the pointer that it moves."""
        value = (re.search(r"tt\.load (%\w+)", line) or ("", ""))[1]
        while value in defined:
            value = re.search(r"%\w+", defined[value])[0]
        return value.removeprefix("%")

    within = []
    for line in lines[first:last]:
        event = read(line) or next((name for pattern, name in _EVENTS if pattern.search(line)), None)
        if event is not None and within[-1:] != [event]:
            within.append(event)
    return {
        "before": sorted({read(line) for line in lines[:first]} & set(arguments)),
        "within": within,
        "through_l1": [line.strip() for line in lines[first:last] if read(line) in EXCHANGED and "= cg" not in line],
    }


def also(made, launch):
    """What the golden table keeps of a persistent scan beside the facts of every kernel."""
    told = story(made.asm["ttgir"], launch.kernel.arg_names)
    return told | {"cooperative": bool(made.metadata.launch_cooperative_grid)}
