"""Intervals and comparisons: against the textbook's numbers, over honest units, and the same each time."""

import pytest

from assize.statistics import compare, compare_all, estimate


def trials(*outcomes) -> dict:
    return {str(number): (float(outcome), 1) for number, outcome in enumerate(outcomes)}


def test_a_proportion_has_wilsons_interval():
    """Newcombe 1998, table I: 81 of 263 is 0.2553 to 0.3662 by Wilson's method."""
    found = estimate(trials(*[1] * 81, *[0] * 182), proportion=True)
    assert (found["method"], found["units"]) == ("wilson", 263)
    assert (round(found["low"], 4), round(found["high"], 4)) == (0.2553, 0.3662)
    nothing = estimate(trials(*[0] * 20), proportion=True)
    assert (nothing["value"], nothing["low"], round(nothing["high"], 4)) == (0.0, 0.0, 0.1611)


def test_a_mean_of_partial_scores_is_bootstrapped_and_the_same_each_time():
    units = trials(0.1, 0.9, 0.4, 0.5, 1.0, 0.0, 0.7)
    found = estimate(units, proportion=False)
    assert found["method"] == "bootstrap"
    assert found["value"] == pytest.approx(3.6 / 7, abs=1e-6)
    assert 0.1 < found["low"] < found["value"] < found["high"] < 0.9
    assert found == estimate(units, proportion=False)


def test_repeats_of_an_instance_are_one_unit():
    """Ten instances that always pass or never do, asked ten times: as much is known as from ten, not from a hundred."""
    once = {str(number): (float(number < 5), 1) for number in range(10)}
    ten_times = {name: (10 * passed, 10) for name, (passed, _) in once.items()}
    repeated, single = estimate(ten_times, proportion=True), estimate(once, proportion=True)
    assert (repeated["value"], repeated["units"], repeated["method"]) == (0.5, 10, "bootstrap")
    width = repeated["high"] - repeated["low"]
    assert width > 0.8 * (single["high"] - single["low"])


def test_unlike_instances_count_by_their_parts():
    """A rate over parts: 1 of 1 and 0 of 9 are 10%, not 50%."""
    found = estimate({"a": (1, 1), "b": (0, 9)}, proportion=False)
    assert found["value"] == 0.1


def test_instances_that_are_all_alike_do_not_make_certainty():
    all_passed = estimate({str(number): (3.0, 3) for number in range(6)}, proportion=True)
    assert (all_passed["value"], all_passed["method"], all_passed["high"]) == (1.0, "wilson", 1.0)
    assert all_passed["low"] == pytest.approx(0.609666)
    half = estimate(trials(0.5, 0.5, 0.5), proportion=False)
    assert (half["value"], half["low"], half["high"], half["method"]) == (0.5, None, None, "none")
    assert estimate({}, proportion=True)["value"] is None


def test_two_conditions_are_compared_by_mcnemars_exact_test():
    """8 pairs one way, 1 the other: p = 2 * (1 + 9) / 2**9."""
    first = trials(*[1] * 8, 0, *[1] * 5, *[0] * 6)
    second = trials(*[0] * 8, 1, *[1] * 5, *[0] * 6)
    found = compare(first, second, proportion=True)
    assert (found["first_higher"], found["second_higher"], found["discordant"]) == (8, 1, 9)
    assert (found["instances"], found["method"], found["p_value"]) == (20, "mcnemar", 0.0390625)
    assert found["difference"] == 0.35
    assert found["low"] < 0.35 < found["high"]
    assert compare(first, first, proportion=True)["p_value"] == 1.0


def test_a_comparison_is_over_instances_that_both_have():
    found = compare(trials(1, 0, 1), trials(0, 0), proportion=True)
    assert (found["instances"], found["discordant"]) == (2, 1)
    assert compare(trials(1), {"other": (1.0, 1)}, proportion=True) is None


def test_repeats_or_partial_scores_are_compared_by_instance_and_no_p_value_is_claimed():
    first = {"a": (2.0, 3), "b": (3.0, 3), "c": (0.0, 3)}
    second = {"a": (1.0, 3), "b": (3.0, 3), "c": (0.0, 3)}
    found = compare(first, second, proportion=True)
    assert (found["discordant"], found["p_value"], found["method"]) == (1, None, "bootstrap")
    assert found["difference"] == pytest.approx(1 / 9, abs=1e-6)


def test_the_difference_of_two_rates_is_the_difference_of_their_estimates():
    """1 of 1 and 0 of 9 are 10%, as 0 of 1 and 1 of 9 are: the rates do not differ, though both instances do."""
    first, second = {"a": (1, 1), "b": (0, 9)}, {"a": (0, 1), "b": (1, 9)}
    found = compare(first, second, proportion=False)
    assert (found["difference"], found["first_higher"], found["second_higher"]) == (0.0, 1, 1)
    assert found["low"] < 0 < found["high"]
    first = {str(number): (number % 3, 1 + number % 7) for number in range(20)}
    second = {str(number): (number % 2, 1 + number % 5) for number in range(20)}
    rates = [estimate(units, proportion=False)["value"] for units in (first, second)]
    assert compare(first, second, proportion=False)["difference"] == pytest.approx(rates[0] - rates[1], abs=2e-6)


def test_a_small_p_value_is_not_nothing():
    assert compare(trials(*[1] * 30), trials(*[0] * 30), proportion=True)["p_value"] == 1.86265e-09


def test_the_order_of_a_sum_makes_no_difference():
    first, second = {"a": (0.1 + 0.2 + 0.3, 3), "b": (1.0, 3)}, {"a": (0.3 + 0.2 + 0.1, 3), "b": (1.0, 3)}
    assert first != second
    found = compare(first, second, proportion=False)
    assert (found["discordant"], found["difference"], found["low"], found["high"]) == (0, 0.0, None, None)


def test_every_pair_is_compared_once():
    conditions = {name: trials(1, 0) for name in ("a", "b", "c")}
    pairs = [(line["first"], line["second"]) for line in compare_all(conditions, proportion=True)]
    assert pairs == [("a", "b"), ("a", "c"), ("b", "c")]
