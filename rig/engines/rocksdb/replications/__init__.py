"""The document on RocksDB's log (S4), carried out by RocksDB's own benchmark and through the binding of the driver."""

from __future__ import annotations

from rig.engines.rocksdb.replications import bench, binding

REPLICATIONS = (bench.REPLICATION, binding.REPLICATION)
