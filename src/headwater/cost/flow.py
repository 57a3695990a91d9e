"""How much data runs along each stream?

Takes a `Pipeline`, gives `Flow`: the rate and record size of every stream and what comes into each
operator. Placement plays no part in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.model.pipeline import Pipeline

__all__ = ["Flow", "flow"]


@dataclass(frozen=True, slots=True)
class Flow:
    """Rates and sizes along the pipeline, streams in the order of `Pipeline.streams`."""

    rate_rps: tuple[float, ...]  # of each stream
    size_bytes: tuple[float, ...]  # of a record of each stream
    in_rate_rps: Mapping[str, float]  # what comes into each operator; a source: its own rate

    def load_bps(self, stream: int) -> float:
        """Return the bits per second of one stream."""
        return 8.0 * self.rate_rps[stream] * self.size_bytes[stream]


def flow(pipeline: Pipeline) -> Flow:
    """Return the rates and sizes along the pipeline."""
    first, count = pipeline.first_stream, len(pipeline.streams)
    rate, size = [0.0] * count, [0.0] * count
    in_rate: dict[str, float] = {}
    out: dict[str, tuple[float, float]] = {}
    by_name = pipeline.by_name
    for name in pipeline.order:
        operator = by_name[name]
        if operator.is_source:
            in_rate[name] = operator.rate_rps
            out[name] = (operator.rate_rps, operator.size_bytes)
            continue
        records = volume = 0.0
        for i, stream in enumerate(operator.inputs, first[name]):
            out_rate, out_size = out[stream.source]
            rate[i], size[i] = out_rate * stream.rate_factor, out_size * stream.size_factor
            records += rate[i]
            volume += rate[i] * size[i]
        in_rate[name] = records
        out[name] = (
            operator.rate_factor * records,
            operator.size_factor * (volume / records if records > 0.0 else 0.0),
        )
    return Flow(tuple(rate), tuple(size), in_rate)
