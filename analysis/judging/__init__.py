"""What a run shows: promises, controls, outcomes, mutants, coverage, and the statistics of all."""
