"""Models of three classes or more: the class of the largest sum is predicted."""
