"""Workloads: what is done to a database, as pure functions of a seed. Shipped to the guest: standard library only."""

from rig.workloads.workload import MEASURED, NAMES, QUICK, Walk, Work, Workload, workload_named

__all__ = ["MEASURED", "NAMES", "QUICK", "Walk", "Work", "Workload", "workload_named"]
