"""Intervals and comparisons of a study's conditions: what scipy computes, over units that are honest. Pure.

The unit is the instance. Where each condition has one episode an instance, a pass rate is a proportion of independent
trials: Wilson's interval, and McNemar's exact test for a pair of conditions. Where there are repeats, the episodes of
an instance are not independent, and a mean of partial scores is no proportion: instances are resampled (bootstrap),
each with all its episodes.
"""

from collections.abc import Callable
from itertools import combinations

LEVEL = 0.95
RESAMPLES = 9999
# One generator, made anew from this for each number: what is computed does not depend on what was computed before.
SEED = 20261130
# Of what is kept: less than what an interval of resamples is good for, more than another processor's sums differ by.
DIGITS = 6

# For each instance, what its episodes count: (a sum, over how many). A rate is the sum of the first over the second.
Units = dict[str, tuple[float, float]]


def provenance() -> dict:
    """For the census: what was used, so that the same numbers can be had again."""
    from importlib.metadata import version

    return {"level": LEVEL, "resamples": RESAMPLES, "seed": SEED, "scipy": version("scipy")}


def estimate(units: Units, proportion: bool) -> dict:
    """A rate with its interval.

    Parameters
    ----------
    units : instance -> (sum, of how many); an instance of nothing counts nothing.
    proportion : whether each unit is one trial that failed (0) or passed (1).

    Returns
    -------
    value, low, high (None where no interval can be told), method and units (how many instances).
    """
    pairs = [pair for pair in units.values() if pair[1]]
    total = sum(of for _, of in pairs)
    if not total:
        return {"value": None, "low": None, "high": None, "method": "none", "units": 0}
    value = sum(count for count, _ in pairs) / total
    if proportion and all(of == 1 for _, of in pairs):
        low, high, method = *_wilson(sum(count for count, _ in pairs), len(pairs)), "wilson"
    elif len({count / of for count, of in pairs}) > 1:
        low, high, method = *_bootstrap(pairs, _ratio), "bootstrap"
    elif proportion and value in (0.0, 1.0):
        # Resampling instances that are all alike says that there is no doubt. There is: that of so many trials.
        low, high, method = *_wilson(value * len(pairs), len(pairs)), "wilson"
    else:
        low, high, method = None, None, "none"
    return {
        "value": round(value, DIGITS),
        "low": None if low is None else round(float(low), DIGITS),
        "high": None if high is None else round(float(high), DIGITS),
        "method": method,
        "units": len(pairs),
    }


def _ratio(count, of, axis=-1):
    return count.sum(axis=axis) / of.sum(axis=axis)


def _wilson(passed: float, trials: int) -> tuple[float, float]:
    from scipy.stats import binomtest

    interval = binomtest(round(passed), trials).proportion_ci(confidence_level=LEVEL, method="wilson")
    return interval.low, interval.high


def _bootstrap(pairs: list[tuple], statistic: Callable) -> tuple[float, float]:
    """The percentile interval of a statistic of paired columns, with whole instances resampled."""
    import numpy
    from scipy.stats import bootstrap

    columns = tuple(numpy.array(column, dtype=float) for column in zip(*pairs, strict=True))
    interval = bootstrap(
        columns,
        statistic,
        paired=True,
        vectorized=True,
        confidence_level=LEVEL,
        n_resamples=RESAMPLES,
        method="percentile",
        # So that thousands of instances need no gigabyte.
        batch=max(1, 2_000_000 // len(pairs)),
        rng=numpy.random.default_rng(SEED),
    ).confidence_interval
    return interval.low, interval.high


def compare(first: Units, second: Units, proportion: bool) -> dict | None:
    """Two conditions at the instances that both have; None where there is no such instance.

    Returns
    -------
    instances; first_higher, second_higher and discordant (their sum); difference (first minus second, of the rates that
    ``estimate`` gives for these instances) with low and high; p_value of McNemar's exact test where each unit is one
    trial, else None; method.
    """
    import numpy

    shared = [name for name in first if name in second and first[name][1] and second[name][1]]
    if not shared:
        return None
    pairs = [(*first[name], *second[name]) for name in shared]
    # The same partial scores, summed in another order, are the same.
    differences = [round(a / of_a - b / of_b, DIGITS) for a, of_a, b, of_b in pairs]
    higher, lower = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    exact = proportion and all(units[name][1] == 1 for units in (first, second) for name in shared)
    low = high = None
    if len({(round(a / of_a, DIGITS), d) for (a, of_a, _, _), d in zip(pairs, differences, strict=True)}) > 1:
        low, high = (round(float(end), DIGITS) for end in _bootstrap(pairs, _difference))
    if low == high:
        # Whatever is drawn of instances that all differ alike, it differs so: that says nothing of what is uncertain.
        low = high = None
    return {
        "instances": len(shared),
        "first_higher": higher,
        "second_higher": lower,
        "discordant": higher + lower,
        "difference": round(_difference(*map(numpy.array, zip(*pairs, strict=True))).item(), DIGITS),
        "low": low,
        "high": high,
        "p_value": _mcnemar(higher, lower) if exact else None,
        "method": "mcnemar" if exact else "bootstrap",
    }


def _difference(first, of_first, second, of_second, axis=-1):
    return _ratio(first, of_first, axis) - _ratio(second, of_second, axis)


def _mcnemar(higher: int, lower: int) -> float:
    """McNemar's exact test: under no difference, a discordant pair goes either way like a coin."""
    from scipy.stats import binomtest

    if not higher + lower:
        return 1.0
    # To so many digits, not decimals: it may be small, and is never 0.
    return float(f"{binomtest(higher, higher + lower).pvalue:.{DIGITS}g}")


def compare_all(conditions: dict[str, Units], proportion: bool) -> list[dict]:
    """Every pair of conditions, in the order given. The p-values are not adjusted for how many pairs there are."""
    found = []
    for (first, units), (second, others) in combinations(conditions.items(), 2):
        compared = compare(units, others, proportion)
        if compared:
            found.append({"first": first, "second": second, **compared})
    return found
