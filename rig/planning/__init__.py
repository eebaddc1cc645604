"""Which scenarios there are, which crash states of each are looked at, and the audit of these. No QEMU."""
