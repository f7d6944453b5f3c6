"""Pages for people: one self-contained HTML file that loads nothing from the network."""
