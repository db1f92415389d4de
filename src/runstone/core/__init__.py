"""The waist: sessions, runs, numbered events. Pure values and folds; no I/O, no clock, no ids made here."""
