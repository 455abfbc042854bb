"""Files as tables and as graphs; see the listing in `mgraph.tables`."""
