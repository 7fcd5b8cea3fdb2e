"""Soak: does anything grow, storm or wake up that should not, over an hour of simulated time and ten minutes of real churn."""
