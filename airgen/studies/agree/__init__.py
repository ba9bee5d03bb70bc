"""Does a generated benchmark rank systems as human labels do? (paper 4.1, RQ1)"""
