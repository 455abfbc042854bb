"""Components and communities: groups of vertices."""
