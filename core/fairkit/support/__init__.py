"""What every room stands on: atomic files, text from outside, phases of time, names that are loaded when used."""
