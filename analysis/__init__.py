"""Analysis of stored results: promises, controls, outcomes, statistics, table and report. Works without QEMU."""
