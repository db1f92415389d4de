"""Sources of runs inside this process, one file a framework."""
