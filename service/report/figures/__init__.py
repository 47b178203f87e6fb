"""A report's figures: the dashboard's answers drawn for paper, without a browser."""
