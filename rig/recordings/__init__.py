"""Recordings and what they tell: archives, timelines, recoveries, live cuts. No QEMU."""
