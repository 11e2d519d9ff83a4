"""What was found, as text, JSON, SARIF, JUnit XML and a page."""
