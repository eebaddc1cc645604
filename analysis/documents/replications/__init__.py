"""What documents measured about an engine's speed, as small workloads: `rig speed --document NAME`.

Each module says in its docstring where its workload comes from and what is known about it. Code and words are ours.
Only ratios are comparable: the documents used other disks, versions and files, and most do not name them.
"""

from __future__ import annotations

import importlib

from rig.speed.trials.replication import Replication

# Of one document in their order: what the document measured itself comes first.
_MODULES = ("s0", "s1", "s2", "s3", "s4_dbbench", "s4_rocksdb", "s4_leveldb")


def replications() -> tuple[Replication, ...]:
    """Return the replications of all documents."""
    return tuple(importlib.import_module(f"{__name__}.{name}").REPLICATION for name in _MODULES)
