"""A database that is one block of 64 KiB with a checksum, rewritten in place by each transaction.

So it needs a disk that writes 64 KiB atomically: where it does not, a power cut leaves a block that nobody can open.
"""
