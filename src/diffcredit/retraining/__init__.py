"""Ways to get a coalition's model, from the most expensive, ``from_scratch``, to the cheapest, ``soup``.

``RETRAININGS`` maps the name in a study file to the class. A plug-in, ``package.module:Class``, is as good;
:mod:`diffcredit.retraining.base` states what it must have.
"""

RETRAININGS = {
    "from_scratch": "diffcredit.retraining.fine_tune:FromScratch",
    "fine_tune": "diffcredit.retraining.fine_tune:FineTune",
    "sparsified": "diffcredit.retraining.sparsified:Sparsified",
    "lora": "diffcredit.retraining.lora:LoRA",
    "gradient_ascent": "diffcredit.retraining.unlearning:GradientAscent",
    "influence": "diffcredit.retraining.unlearning:Influence",
    "soup": "diffcredit.retraining.soup:Soup",
}
