"""What an exploration found, as text, SVG, HTML, JUnit XML and SARIF."""
