"""One trial of a measurement of speed, carried out once. Shipped to the guest: standard library only."""
