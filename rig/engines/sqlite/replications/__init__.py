"""What documents about SQLite measured, as small workloads: `rig speed --document NAME`.

Each module says in its docstring where its workload comes from and what is known about it. Code and words are ours.
Only ratios are comparable: the documents used other disks, versions and files, and most do not name them.
"""

from rig.engines.sqlite.replications import s0, s1, s2, s3

REPLICATIONS = (s0.REPLICATION, s1.REPLICATION, s2.REPLICATION, s3.REPLICATION)

__all__ = ["REPLICATIONS"]
