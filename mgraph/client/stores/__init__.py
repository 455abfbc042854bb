"""The store of a graph: its options and its reports, and the recovery of a graph whose worker was lost."""
