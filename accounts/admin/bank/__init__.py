"""The bank's own pages: accounts, entries, and what can be booked by hand."""
