"""Late interaction: one vector per token, compared by MaxSim."""
