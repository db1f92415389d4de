"""The verbs: start, resume, stop, decide, history. One owner writes all events of a run; everybody else sends it a command."""
