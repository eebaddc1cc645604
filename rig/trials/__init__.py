"""One trial of a measurement of speed: a load, or a document's own workload, carried out once.

Shipped to the guest: standard library only.
"""
