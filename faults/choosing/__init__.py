"""Which of all crash states are checked."""
