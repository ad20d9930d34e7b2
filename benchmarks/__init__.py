"""What is measured, with the results and the machine they came from: one folder a benchmark."""
