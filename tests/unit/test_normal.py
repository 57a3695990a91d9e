"""Is the normal distribution's quantile that of scipy?"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from headwater.control.normal import quantile


def test_quantiles_are_those_of_scipy_from_end_to_end() -> None:
    parts = np.concatenate((np.geomspace(1e-12, 0.5, 4001), 1.0 - np.geomspace(1e-9, 0.5, 4001)))
    assert np.allclose(quantile(parts), ndtri(parts), rtol=2e-9, atol=2e-9)
    assert (np.diff(quantile(np.linspace(0.001, 0.999, 100_001))) > 0.0).all(), "it never falls"
