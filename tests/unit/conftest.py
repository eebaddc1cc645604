"""Settings of hypothesis for the unit tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Where CI is set, hypothesis would try the same examples every time. Here each run tries new ones, and what fails comes
# with a line that shows it again. That the machine is busy says nothing about the code.
settings.register_profile(
    "rig",
    settings.get_profile("default"),
    derandomize=False,
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rig")
