"""What is run, and what it means: specs, suites, sweeps, analysis, reports and the command."""
