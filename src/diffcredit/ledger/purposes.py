"""Why an evaluation was made, and the replicate numbers that each purpose owns.

The ledger identifies an evaluation by its coalition and replicate, whatever its purpose. Each purpose therefore has its
own range of replicates, counted from the number below (estimates and endpoints from 0), so that no estimate ever uses a
truth evaluation by accident. Seeds are derived from these numbers: changing one changes all values computed later.
"""

PURPOSES = ("estimate", "truth", "pilot", "endpoint", "validation")

PILOT_REPLICATE = 1_000_000
TRUTH_REPLICATE = 2_000_000  # also for leave-one-out models, which only validation reads
UNLEARNING_REPLICATE = 4_000_000  # a range of its own: these models' images are kept, others' are not
