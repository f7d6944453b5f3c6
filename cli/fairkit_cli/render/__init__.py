"""Pages written as text for a terminal, as HTML and as Markdown."""
