"""Scenarios measured, from the recording to the verdicts."""
