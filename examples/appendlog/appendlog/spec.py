"""What the rig must know about the append-only log before anything runs."""

from rig.engines import Spec

SPEC = Spec(
    name="appendlog",
    settings={"sync": ("always", "never")},
    unprotected={"sync": ("never",)},
    strict=("always",),
    cross_checks=("always", "never"),
    warm=("always",),
)
