"""What the rig must know about it before anything runs."""

from rig.engines import Spec

SPEC = Spec(
    name="latemanifest",
    settings={"sync": ("never", "always")},
    unprotected={"sync": ("never",)},
    strict=("always",),
    cross_checks=("always", "never"),
    warm=("always",),
)
