"""The compiled engine: the few statements that every change of a balance comes down to, one round trip each."""
