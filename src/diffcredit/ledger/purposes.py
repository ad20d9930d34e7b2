"""Why an evaluation was made, and the replicate numbers that belong to each purpose.

Within a recipe, an evaluation is identified by its coalition and replicate, whatever its purpose. Evaluations made for
estimating, for pilots and for validation count their replicates from different numbers, so that no estimate ever uses a
truth evaluation by accident:

==============  ==========  ==========================================================================
purpose         from        made for
==============  ==========  ==========================================================================
``estimate``    0           estimating credits: a coalition of the design
``endpoint``    0           estimating credits: the empty or the full coalition
``pilot``       1,000,000   measuring noise and time before a run
``truth``       2,000,000   validation: a coalition retrained from scratch, never used for credits
``validation``  2,000,000   validation: a model without one contributor, read by validation only
..              4,000,000   validation: models compared for unlearning, whose images are kept
``reference``   3,000,000   credits' level: the untrained network, where the empty coalition has house images
..              3,000,001   credits' level: the pretrained model as it came
==============  ==========  ==========================================================================

Seeds are derived from these numbers: changing one changes every value computed from then on.
"""

PURPOSES = ("estimate", "truth", "pilot", "endpoint", "validation", "reference")

PILOT_REPLICATE = 1_000_000
TRUTH_REPLICATE = 2_000_000
REFERENCE_REPLICATES = {"untrained": 3_000_000, "pretrained": 3_000_001}
UNLEARNING_REPLICATE = 4_000_000
