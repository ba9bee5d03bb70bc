"""How diverse the queries of datasets are (paper 3.2 and B.3)."""
