"""Ready-made scenarios: the only room of the lab that imports accounts."""
