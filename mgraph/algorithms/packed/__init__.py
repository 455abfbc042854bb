"""Rows without gaps, made for a call that reads them many times."""
