"""Small tools that every room uses: files, names, seeds, plug-ins, progress. They know nothing of studies."""
