"""QEMU: the guest image, the command line, the monitor, templates and the clones restored from them."""
