"""The programs that run the workload in the guest, and the faults injected while they run."""
