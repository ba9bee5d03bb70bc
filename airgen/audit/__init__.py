"""People decide what a model cannot: labels, systems, relevance, holes."""
