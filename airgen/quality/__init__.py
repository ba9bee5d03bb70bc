"""Can a benchmark be trusted? Judges against people, rankings against human ones, audits, diversity, holes."""
