"""The claims of documents about durability and speed, the experiments that decide them, and their verdicts."""
