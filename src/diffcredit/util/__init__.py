"""Small tools that every room uses: files, seeds, plug-ins, progress, safe text. They know nothing of studies."""
