"""Speed and size, measured as ratios in one run: `scripts/bench`."""
