"""Payouts where the truth is known: what false names and copies gain, and how often intervals hold."""
