"""What changed from run to run: the figures that are compared, the baseline, two runs side by side, and all nights."""
