"""One page of ``/metrics``, from any engine, as a few signals that mean the same everywhere. Pure.

Names are those of SGLang 0.5 and older, of vLLM, and of Dynamo. Of several names for one signal the
first that is present counts. Ranks of one instance: tensor and pipeline ranks repeat a figure, so
the largest counts; data-parallel ranks have each their own, so they add up (or their mean counts,
where a figure is a share).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pd_users.metric_names import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    MAX,
    MEAN,
    WANTED,
    Alternatives,
    Source,
)

SLICE_LINES = 8
REPEATING = ("tp_rank", "pp_rank", "moe_ep_rank", "pid")
ROLE_LABELS = ("engine_type", "disaggregation_mode", "dynamo_component")
ROLES = {"prefill": "prefill", "decode": "decode", "backend": "decode"}
INSTANCE_LABELS = ("instance", "worker_addr", "pod")


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts by upper bound, in milliseconds."""

    sum_ms: float
    count: float
    buckets: tuple[tuple[float, float], ...]  # (bound, how many are at most that)

    def since(self, earlier: "Histogram") -> "Histogram":
        """What came after ``earlier``; all of it, when the server began anew in between."""
        if self.count < earlier.count:
            return self
        before = dict(earlier.buckets)
        buckets = tuple((le, n - before.get(le, 0.0)) for le, n in self.buckets)
        return Histogram(self.sum_ms - earlier.sum_ms, self.count - earlier.count, buckets)

    def quantile(self, q: float) -> float:
        """A quantile, ms, by linear interpolation in its bucket; 0 without a sample."""
        wanted, low, below = q * self.count, 0.0, 0.0
        for bound, n in self.buckets:
            if n >= wanted and n > below:
                if bound == inf:
                    return low
                return low + (bound - low) * (wanted - below) / (n - below)
            if bound < inf:
                low, below = bound, n
        return low


@dataclass(frozen=True, slots=True)
class Reading:
    """The signals of one instance at one moment."""

    role: str = ""  # "prefill", "decode", or '' when the page does not say
    instance: str = ""
    engine: str = ""  # "sglang", "vllm", "dynamo", or '' when no known metric is there
    gauges: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)


def read_page(text: str, breathe: Callable[[], None] = lambda: None) -> list[Reading]:
    """The instances on one page, most often one. Raises ValueError where it is no metrics page.

    ``breathe`` is called between slices of the work: the parser is thorough and slow (0.1 ms a
    line), and whoever measures in the same process cannot wait for a page.
    """
    lines = [line for line in text.splitlines() if line.partition("{")[0].split(" ")[0] in WANTED]
    groups: dict[tuple[str, str], list[Sample]] = {}
    for k in range(0, len(lines), SLICE_LINES):
        for family in text_string_to_metric_families("\n".join(lines[k : k + SLICE_LINES]) + "\n"):
            for sample in family.samples:
                groups.setdefault((_role(sample), _instance(sample)), []).append(sample)
        breathe()
    nameless = groups.pop(("", ""), [])
    if not groups:
        return [_reading("", "", nameless)]
    if len(groups) == 1:
        ((role, instance),) = groups
        return [_reading(role, instance, [*groups[role, instance], *nameless])]
    return [_reading(role, name, groups[role, name]) for role, name in sorted(groups)]


def _role(sample: Sample) -> str:
    found = (ROLES.get(sample.labels.get(label, "")) for label in ROLE_LABELS)
    return next((role for role in found if role), "")


def _instance(sample: Sample) -> str:
    return next((sample.labels[name] for name in INSTANCE_LABELS if name in sample.labels), "")


def _reading(role: str, instance: str, samples: Iterable[Sample]) -> Reading:
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    histograms = {name: _histogram(by_name, pairs) for name, pairs in HISTOGRAMS.items()}
    return Reading(
        role=role,
        instance=instance,
        engine=next((n.partition(":")[0].partition("_")[0] for n in by_name), ""),
        gauges=_values(by_name, GAUGES),
        counters=_values(by_name, COUNTERS),
        histograms={name: h for name, h in histograms.items() if h is not None},
    )


def _values(
    by_name: Mapping[str, list[Sample]], wanted: Mapping[str, tuple[str, Alternatives]]
) -> dict[str, float]:
    out = {}
    for signal, (how, alternatives) in wanted.items():
        for sources in alternatives:
            found = [
                _over_ranks([s for s in by_name[source.name] if source.takes(s.labels)], how)
                for source in sources
                if source.name in by_name
            ]
            if found:
                out[signal] = sum(found)
                break
    return out


def _over_ranks(samples: list[Sample], how: str) -> float:
    """The samples of one metric as one number."""
    totals = [s for s in samples if s.labels.get("priority") == ""]
    largest: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in totals or samples:  # SGLang: priority="" is the total of the other priorities
        key = tuple(sorted((k, v) for k, v in sample.labels.items() if k not in REPEATING))
        largest[key] = max(sample.value, largest.get(key, -inf))
    values = list(largest.values())
    if not values:
        return 0.0
    if how == MAX:
        return max(values)
    # A share of one rank, whose other labels (such as category) add up.
    ranks = len({dict(key).get("dp_rank", dict(key).get("engine", "")) for key in largest})
    return sum(values) / (ranks if how == MEAN else 1)


def _histogram(
    by_name: Mapping[str, list[Sample]], pairs: tuple[tuple[float, Source], ...]
) -> Histogram | None:
    for unit_ms, source in pairs:
        counts = [s for s in by_name.get(f"{source.name}_count", ()) if source.takes(s.labels)]
        if not counts:
            continue
        sums = [s for s in by_name.get(f"{source.name}_sum", ()) if source.takes(s.labels)]
        at_most: dict[float, float] = {}
        for sample in by_name.get(f"{source.name}_bucket", ()):
            if source.takes(sample.labels):
                bound = float(sample.labels["le"]) * unit_ms
                at_most[bound] = at_most.get(bound, 0.0) + sample.value
        total_ms = unit_ms * sum(s.value for s in sums)
        return Histogram(total_ms, sum(s.value for s in counts), tuple(sorted(at_most.items())))
    return None
