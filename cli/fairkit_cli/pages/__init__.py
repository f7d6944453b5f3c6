"""What is shown of each result, as data; `fairkit_cli.render` writes it for terminals, browsers and Markdown."""
