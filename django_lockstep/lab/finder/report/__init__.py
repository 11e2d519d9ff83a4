"""What is said about the candidates of a recording: races by cause, as text, page, JSON, SARIF and JUnit."""
