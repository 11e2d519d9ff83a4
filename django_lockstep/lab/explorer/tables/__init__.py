"""The tables of a race: scratch databases, copies that are put back before each schedule, and what a run left."""
