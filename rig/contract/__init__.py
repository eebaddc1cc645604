"""The vocabulary that host and guest share: scenarios, faults, results, errors. Standard library only."""
