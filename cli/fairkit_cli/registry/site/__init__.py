"""A static web view of a registry: pages that need no server, and no fairkit to look at."""
