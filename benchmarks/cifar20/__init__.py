"""CIFAR-20's twenty labelers on one H200: the record of studies/cifar20-h200, and the page about it."""
