"""Results: findings with intervals, the policy that judges them, comparisons of two models, and their JSON."""
