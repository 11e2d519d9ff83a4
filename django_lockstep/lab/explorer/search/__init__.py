"""Which order next: pure search strategies that know moves and their effects, and no database."""
