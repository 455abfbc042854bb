"""Packed memory array: the common part of gpma, gpma+ and lpma."""
