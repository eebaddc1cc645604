"""One module for each fault, and the list of all."""
