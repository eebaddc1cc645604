"""The machine: it records a workload in a virtual machine and checks what a power cut could have left behind."""
