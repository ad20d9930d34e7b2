"""Images to vectors, by which properties, surrogates and baselines compare images.

``EXTRACTORS`` maps the name in a study file to the class; a plug-in ``package.module:Class`` is as good.
"""

from diffcredit.features.base import Extractor, Features, FeaturesOption, Images

EXTRACTORS = {
    "pixels": "diffcredit.features.pixels:Pixels",
    "layout": "diffcredit.features.pixels:Layout",
    "colours": "diffcredit.features.pixels:Colours",
    "efficientnet_lite0": "diffcredit.features.efficientnet:EfficientNetLite0",
    "inception_v3": "diffcredit.features.inception:InceptionV3",
    "clip": "diffcredit.features.transformers_vision:CLIP",
    "blip_vqa": "diffcredit.features.transformers_vision:BLIPVQA",
    "transformers": "diffcredit.features.transformers_vision:TransformersVision",
    "timm": "diffcredit.features.timm_vision:TimmVision",
}

__all__ = ["EXTRACTORS", "Extractor", "Features", "FeaturesOption", "Images"]
