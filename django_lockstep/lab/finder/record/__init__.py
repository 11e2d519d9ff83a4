"""Records what the project's tests do: requests, calls, transactions, and the rows that these read and write."""
