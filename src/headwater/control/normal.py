"""How far out does a part of a normal distribution end?

Acklam's rational approximation, within 1.2e-9 of the truth relatively. The library that has it (scipy.special) takes a
third of the time in which an agent starts, and an agent that was killed is waited for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from headwater.control.readings import Floats

__all__ = ["quantile"]

A = (-3.969683028665376e1, 2.209460984245205e2, -2.759285104469687e2, 1.383577518672690e2, -3.066479806614716e1,
     2.506628277459239)  # fmt: skip
B = (-5.447609879822406e1, 1.615858368580409e2, -1.556989798598866e2, 6.680131188771972e1, -1.328068155288572e1, 1.0)
C = (-7.784894002430293e-3, -3.223964580411365e-1, -2.400758277161838, -2.549732539343734, 4.374664141464968,
     2.938163982698783)  # fmt: skip
D = (7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0)
TAIL = 0.02425


def quantile(part: ArrayLike) -> Floats:
    """Return below which value this part of a normal distribution lies; parts are above 0 and below 1.

    >>> [round(float(one), 6) for one in quantile([0.5, 0.99, 0.001])]
    [0.0, 2.326348, -3.090232]
    """
    p = np.asarray(part, np.float64)
    middle = p - 0.5
    outer = np.minimum(p, 1.0 - p)
    is_near = outer >= TAIL
    root = np.sqrt(-2.0 * np.log(np.minimum(outer, TAIL)))
    far = _poly(C, root) / _poly(D, root)
    found = np.where(middle < 0.0, far, -far)
    if bool(is_near.any()):
        square = middle * middle
        found = np.where(is_near, middle * _poly(A, square) / _poly(B, square), found)
    return np.asarray(found, np.float64)


def _poly(coefficients: tuple[float, ...], at: Floats) -> Floats:
    """Return a polynomial, the highest power first."""
    found = coefficients[0] * at
    for one in coefficients[1:-1]:
        found += one
        found *= at
    found += coefficients[-1]
    return found
