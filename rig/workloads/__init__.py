"""What is done to a database, as pure functions of a seed. Shipped to the guest: standard library only."""
