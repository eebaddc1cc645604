"""The code that runs inside the virtual machine. Standard library only: it travels in the initrd."""
