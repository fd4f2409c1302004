"""Intervals of 95 %."""

from scipy.special import ndtri, stdtrit

UPPER = 0.975  # probability below the upper end
INTERVAL = (1.0 - UPPER, UPPER)  # quantiles at both ends
DEVIATIONS = float(ndtri(UPPER))  # half the width of a Normal's, 1.96 standard deviations


def student_factor(freedom: float) -> float:
    """Quantile of Student's t over that of the Normal: a Normal so much wider has its interval."""
    return float(stdtrit(freedom, UPPER)) / DEVIATIONS
