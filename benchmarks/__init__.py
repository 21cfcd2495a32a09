"""Side-by-side measurements, run by make bench."""
