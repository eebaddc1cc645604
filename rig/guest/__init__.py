"""The code that runs inside the virtual machine. It uses the standard library only, because the initrd carries it."""
