"""Reports of suites: their answers gathered, put into words and tables, and written as files."""
