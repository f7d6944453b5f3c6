"""Planning: how many rows decide a rule, and what an audit of a given size can see."""
