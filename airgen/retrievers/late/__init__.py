"""Late interaction: one vector for each token, compared by MaxSim."""
