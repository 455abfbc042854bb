"""Moved: `mgraph.sources` has what users imported from here. This folder goes with the next release."""
