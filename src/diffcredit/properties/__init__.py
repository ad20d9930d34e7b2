"""Images to numbers: the properties that contributors are credited for.

``PROPERTIES`` maps the name in a study file to the class. A plug-in ``package.module:Class`` is as good, and so is a
plain function of the images. :class:`Property` has the contract.
"""

from diffcredit.features import Images
from diffcredit.properties.base import Context, Property, State, as_property, named_property

PROPERTIES = {
    "colourfulness": "diffcredit.properties.colourfulness:Colourfulness",
    "cluster_entropy": "diffcredit.properties.classes:ClusterEntropy",
    "heldout_loss": "diffcredit.properties.heldout_loss:HeldoutLoss",
    "inception_score": "diffcredit.properties.classes:InceptionScore",
    "fid": "diffcredit.properties.distances:FrechetDistance",
    "kid": "diffcredit.properties.distances:KernelDistance",
    "precision": "diffcredit.properties.manifolds:Precision",
    "recall": "diffcredit.properties.manifolds:Recall",
    "density": "diffcredit.properties.manifolds:Density",
    "coverage": "diffcredit.properties.manifolds:Coverage",
    "class_coverage": "diffcredit.properties.classes:ClassCoverage",
    "class_share": "diffcredit.properties.classes:ClassShare",
    "aesthetic": "diffcredit.properties.clip:Aesthetic",
    "clip_similarity": "diffcredit.properties.clip:ClipSimilarity",
    "nearest_distance": "diffcredit.properties.memorisation:NearestDistance",
    "memorised_share": "diffcredit.properties.memorisation:MemorisedShare",
}

__all__ = ["PROPERTIES", "Context", "Images", "Property", "State", "as_property", "named_property"]
