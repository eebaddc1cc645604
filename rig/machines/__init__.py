"""Machines, started and driven: QEMU's command line, the monitor, templates, their clones, user mode."""
