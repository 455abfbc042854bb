"""Up to 64 breadth-first searches at a time, a bit of a word each."""
