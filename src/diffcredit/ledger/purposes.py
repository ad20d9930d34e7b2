"""Why an evaluation was made, and the replicate numbers that each purpose owns.

The ledger identifies an evaluation by its coalition and replicate, whatever its purpose. Each purpose therefore draws
its replicates from a range of its own, so that no estimate ever rests on a truth evaluation by accident. Seeds derive
from these numbers: changing one changes every value that is computed from then on.
"""

PURPOSES = ("estimate", "truth", "pilot", "endpoint", "validation")

PILOT_REPLICATE = 1_000_000
TRUTH_REPLICATE = 2_000_000  # also of leave-one-out models, which only validation reads
UNLEARNING_REPLICATE = 4_000_000  # their images are kept, unlike those of other models of the same coalitions
