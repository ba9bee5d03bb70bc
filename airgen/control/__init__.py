"""Quality control of candidates: recall, pre-labels, judgments, Table 2, mined negatives (paper 2.4)."""
