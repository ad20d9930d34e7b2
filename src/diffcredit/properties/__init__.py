"""Images to numbers: the properties that contributors are credited for.

``PROPERTIES`` maps the name in a study file to the class; a plug-in ``package.module:Class`` is as good.
"""

from diffcredit.properties.protocol import Context, Images, Property, State

PROPERTIES = {
    "colourfulness": "diffcredit.properties.colourfulness:Colourfulness",
    "cluster_entropy": "diffcredit.properties.cluster_entropy:ClusterEntropy",
    "heldout_loss": "diffcredit.properties.heldout_loss:HeldoutLoss",
}

__all__ = ["PROPERTIES", "Context", "Images", "Property", "State"]
