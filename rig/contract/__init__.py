"""What host and guest both speak: scenarios, faults, results, errors. Standard library only."""
