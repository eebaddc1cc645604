"""A machine is kept on the processor with the fewest machines; machines of other processes count too."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections import Counter
from contextlib import ExitStack

from rig.machines.pinning import processor

_HOLD = """
import sys
from rig.machines.pinning import processor
with processor(sys.argv[1]) as number:
    print(number, flush=True)
    sys.stdin.read()
"""


def test_machines_are_spread_evenly() -> None:
    name = f"test {uuid.uuid4()}"
    with ExitStack() as stack:
        taken = Counter(stack.enter_context(processor(name)) for _ in range(3 * len(os.sched_getaffinity(0))))
    assert dict.fromkeys(os.sched_getaffinity(0), 3) == taken


def test_a_place_that_another_process_has_is_free_again_when_that_dies() -> None:
    name = f"test {uuid.uuid4()}"
    words = [sys.executable, "-c", _HOLD, name]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        theirs = int(other.stdout.readline())
        with processor(name) as ours:
            is_only_one = 1 == len(os.sched_getaffinity(0))
            assert is_only_one or theirs != ours
            other.kill()
            other.wait()
            with processor(name) as next_one:
                assert theirs == next_one
