"""Foreign models run in a process of their own, which has given its rights away."""
