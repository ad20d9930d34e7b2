"""A coalition's model: ways to get it, from the dearest (``from_scratch``) to the cheapest.

``RETRAININGS`` maps the name in a study file to the class; a plug-in ``package.module:Class`` is as good.
"""

RETRAININGS = {
    "from_scratch": "diffcredit.retraining.from_scratch:FromScratch",
    "fine_tune": "diffcredit.retraining.fine_tune:FineTune",
    "sparsified": "diffcredit.retraining.sparsified:Sparsified",
    "lora": "diffcredit.retraining.lora:LoRA",
    "gradient_ascent": "diffcredit.retraining.gradient_ascent:GradientAscent",
    "influence": "diffcredit.retraining.influence:Influence",
    "soup": "diffcredit.retraining.soup:Soup",
}
