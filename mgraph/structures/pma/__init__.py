"""What the packed memory arrays gpma, gpma+ and lpma share."""
