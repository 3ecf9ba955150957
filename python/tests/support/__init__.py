"""What the tests share: recorded trajectories and the oracle."""
