"""Planning: the list of scenarios, the crash states to check for each, and the audit of these states. No QEMU."""
