"""How fast each feature extractor is, and how long measuring takes in the studies that come with the software."""
