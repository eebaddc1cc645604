"""The independent checker: whether a disk could hold a content."""
