"""What the neighbours of each vertex say, added up by label, and the label that the vertex chooses of it."""
