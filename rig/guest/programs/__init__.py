"""The programs that run the workload in the guest, and what is done to them meanwhile."""
