"""What the stored results mean: promises, controls, outcomes, statistics, table and report. Works without QEMU."""
