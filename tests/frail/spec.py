"""What the rig must know about the frail engine before anything runs."""

from rig.engines import Spec

# "rash" and "doze" fail on a sound disk; "litter" leaves files behind whenever it is opened.
_CONDUCTS = (
    "segfault", "abort", "illegal", "exit", "spin", "deaf", "babble", "sleep", "eat", "keep", "daemon", "rash", "doze",
    "litter",
)  # fmt: skip

SPEC = Spec(
    name="frail",
    settings={"conduct": _CONDUCTS},
    warm=("segfault",),
    # Each state is opened, so that those after a damaged one show a process that works.
    depends_on_files_alone=False,
    state_limit_s=5,
)
