"""Let people decide what a model cannot: labels, systems, relevance and holes."""
