"""What was measured: histograms, figures by class, the file they are kept in, and their comparison."""
