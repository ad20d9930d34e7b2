"""How well each way to a coalition's model agrees with retraining from scratch, as its steps grow."""
