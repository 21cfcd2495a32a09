"""What it means: queueing, sizing, calibration and the decision. Pure."""
