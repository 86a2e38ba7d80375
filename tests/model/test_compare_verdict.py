"""What a comparison may say: differences where runs do not overlap, and otherwise that there is none."""

import msgspec
import pytest

from hwprobe.comparison.facts import Comparison, Spread
from hwprobe.comparison.figures import power_of_two, row
from hwprobe.comparison.variants import DEFAULT_VARIANTS, parse_variants
from hwprobe.configuration import LossScaling
from hwprobe.errors import InputError
from hwprobe.serialize import from_json, to_json
from tests.model.comparisons import comparison, run, task, variant


def test_runs_that_overlap_show_no_difference() -> None:
    said = task(variant("float32"), variant("mixed_float16:dynamic", (0.88, 0.9, 0.92))).verdict
    assert "no run was lost in any of 2 variants" in said
    assert "no difference found in accuracy: every variant's runs overlap float32's" in said
    assert "no difference found in time" in said


@pytest.mark.parametrize(
    ("metrics", "higher_is_better", "word"),
    [
        ((0.5, 0.6), True, "worse"),
        ((0.95, 0.96), True, "better"),
        ((0.5, 0.6), False, "better"),
        ((0.95, 0.96), False, "worse"),
    ],
)
def test_runs_that_do_not_overlap_show_which_way(metrics: tuple[float, ...], higher_is_better: bool, word: str) -> None:
    measured = task(
        variant("float32"), variant("mixed_float16:none", metrics), higher_is_better=higher_is_better, metric="error"
    )
    assert any(f"mixed_float16:none has a {word} error than float32" in sentence for sentence in measured.verdict)


def test_one_seed_shows_nothing_about_the_metric() -> None:
    said = task(variant("float32", (0.9,)), variant("mixed_float16:none", (0.1,))).verdict
    assert "one seed shows nothing about accuracy: use --seeds 3" in said
    assert not any("worse" in sentence for sentence in said)


def test_lost_runs_are_counted_and_left_out_of_the_metric() -> None:
    measured = task(variant("float32"), variant("mixed_float16:static=16777216", (None, None, 0.9)))
    assert "mixed_float16:static=16777216 lost 2 of 3 runs" in measured.verdict
    assert measured.variants[1].metric == Spread(mean=0.9, least=0.9, greatest=0.9)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (Spread(mean=0.5, least=0.45, greatest=0.6), "mixed_bfloat16 is faster than float32: 0.50 of its time"),
        (Spread(mean=1.5, least=1.4, greatest=1.6), "mixed_bfloat16 is slower than float32: 1.50 of its time"),
        (Spread(mean=1.2, least=0.9, greatest=1.6), "no difference found in time"),
        (Spread(mean=0.97, least=0.96, greatest=0.98), "no difference found in time"),
        (None, "no time could be set against float32's"),
    ],
)
def test_time_counts_where_every_seed_says_so(ratio: Spread | None, words: str) -> None:
    assert words in task(variant("float32"), variant("mixed_bfloat16", time_ratio=ratio)).verdict


def test_dynamic_is_set_against_each_static_scale() -> None:
    dynamic = variant("mixed_float16:dynamic", time_ratio=Spread(mean=1.2, least=1.19, greatest=1.21))
    static = variant("mixed_float16:static=64", time_ratio=Spread(mean=1.0, least=0.99, greatest=1.01))
    lost = variant("mixed_float16:static=16777216", (None, None, None))
    said = task(variant("float32"), dynamic, static, lost).verdict
    assert "dynamic against static=64: a step with dynamic takes 1.20 of the time with static" in said
    assert any(s.startswith("dynamic against static=16777216: dynamic lost 0 runs and static 3") for s in said)


def test_dynamic_and_static_that_do_not_differ_are_said_not_to() -> None:
    said = task(variant("float32"), variant("mixed_float16:dynamic"), variant("mixed_float16:static=64")).verdict
    assert "dynamic against static=64: no difference found" in said


def test_a_variant_that_was_not_run_says_why() -> None:
    missing = variant("mixed_float16:static=2", (), not_run_because="none is safe here", time_ratio=None)
    assert "mixed_float16:static=2 was not run: none is safe here" in task(variant("float32"), missing).verdict
    assert row(missing)[1] == "not run"


def test_nothing_measured_is_said() -> None:
    assert task(variant("float32", ())).verdict == ("nothing was measured",)


def test_without_float32_only_stability_is_judged() -> None:
    said = task(variant("mixed_float16:dynamic", time_ratio=None)).verdict
    assert said == ("no run was lost", "no time could be set against float32's")


def test_a_variant_that_lost_every_run_has_no_time_to_compare() -> None:
    said = task(variant("float32"), variant("mixed_float16:none", (None, None, None))).verdict
    assert "no time could be set against float32's" in said


@pytest.mark.parametrize(("scale", "text"), [(32768.0, "2^15"), (1.0, "2^0"), (0.03125, "2^-5"), (100.0, "100")])
def test_a_scale_is_written_as_a_power(scale: float, text: str) -> None:
    assert power_of_two(scale) == text


def test_figures_that_differ_between_runs_are_all_shown() -> None:
    mixed = variant("mixed_float16:dynamic", ())
    runs = (run(0, skipped_steps=1, first_bad_step=4), run(1, skipped_steps=0))
    cells = row(msgspec.structs.replace(mixed, runs=runs))
    assert cells[3] == "1, 0"
    assert cells[5] == "4, -"


def test_variants_are_read_as_they_are_written() -> None:
    parsed = parse_variants(
        "float32, mixed_float16, mixed_float16:static=auto,mixed_float16:static=2^24,mixed_bfloat16"
    )
    assert [each.loss_scaling for each in parsed] == [
        LossScaling.none(),
        LossScaling.dynamic(),
        None,
        LossScaling.static(2.0**24),
        LossScaling.none(),
    ]
    assert [each.name for each in parse_variants(",".join(DEFAULT_VARIANTS))] == list(DEFAULT_VARIANTS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no variant is named"),
        (" , ", "no variant is named"),
        ("float64", "variant 'float64' is not understood"),
        ("mixed_float16:", "is not understood"),
        ("mixed_float16:static", "is not understood"),
        ("mixed_float16:static=-1", "positive"),
        ("mixed_float16:static=2^9999", "not a number"),
        ("float32,float32", "named twice"),
    ],
)
def test_a_variant_that_is_not_understood_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_variants(text)


def test_a_comparison_survives_json() -> None:
    full = comparison(
        task(
            variant("float32"),
            variant(
                "mixed_float16:static=64",
                (None, 0.9),
                note="calibrated",
                step_memory_bytes=123,
                not_run_because="because",
            ),
        ),
        stopped="interrupted",
        float32_is_tf32=True,
    )
    assert from_json(to_json(full), Comparison) == full
