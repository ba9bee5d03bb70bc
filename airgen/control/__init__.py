"""Quality control of candidates: recall, pre-labels, judgments, Table 2 and mined negatives (paper 2.4)."""
