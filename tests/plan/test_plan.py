"""Promises: the layout is legal and chosen purely; the plan adds up; it is held against the run."""

import dataclasses
import json

import pytest

from eyas.plan import Machine, Plan, choose_layout, compare, make_plan
from eyas.recipe import Recipe, UsageError
from eyas.shape import Layout, flops_per_token, preset_shape

GIB = 2**30
MACHINE = Machine(cores=2, memory=16 * GIB, processes=2, threads=1, matmul_rate=50e9)


def recipe(**sections: dict) -> Recipe:
    base = {
        "tokenizer": {"vocab_size": 8192},
        "data": {"sequence": 256},
        "train": {"tokens": "1M", "global_batch": 4096, "checkpoint_every": 100},
        "cluster": {"processes": 2},
    }
    merged = {n: base.get(n, {}) | sections.get(n, {}) for n in base | sections}
    return Recipe.build({"name": "test", "store": "runs/test", **merged})


def test_left_alone_all_processes_are_data_parallel():
    assert choose_layout(recipe(), memory=16 * GIB) == Layout(1, 2, 8)


@pytest.mark.parametrize(
    ("keys", "layout"),
    [
        ({"tensor": 2}, Layout(2, 1, 16)),
        ({"data": 1}, Layout(2, 1, 16)),
        ({"tensor": 1, "data": 2, "micro_batch": 2}, Layout(1, 2, 2)),
    ],
)
def test_what_the_recipe_says_is_kept(keys, layout):
    assert choose_layout(recipe(layout=keys), memory=16 * GIB) == layout


def test_the_micro_batch_is_the_largest_that_fits():
    sizes = [
        choose_layout(recipe(), memory=memory).micro_batch
        for memory in (16 * GIB, int(1.5 * GIB), int(1.25 * GIB), GIB)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 8
    assert 1 < sizes[2] < 8
    assert sizes[-1] == 1


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"layout": {"tensor": 3}, "cluster": {"processes": 3}}, "layout.tensor 3"),
        ({"layout": {"micro_batch": 3}}, "legal are 1, 2, 4, 8"),
        ({"layout": {"tensor": 2, "data": 2}}, "layout.data must be 1"),
        ({"cluster": {"processes": 5}}, "layout.data 5 does not divide the 16"),
    ],
)
def test_illegal_layouts_name_the_legal_values(sections, message):
    with pytest.raises(UsageError, match=message):
        choose_layout(recipe(**sections), memory=16 * GIB)


def test_a_plan_adds_up():
    plan = make_plan(recipe(), MACHINE)
    assert plan.parameters == 4_852_224
    assert plan.steps == 244
    assert plan.tokens == 244 * 4096
    assert plan.memory_total == sum(plan.memory.values())
    assert plan.step_seconds == pytest.approx(sum(plan.step.values()))
    assert plan.tokens_per_s == pytest.approx(4096 / plan.step_seconds)
    assert plan.seconds > plan.steps * plan.step_seconds
    assert plan.flops == pytest.approx(flops_per_token(preset_shape("nano-5m"), 256) * 244 * 4096)
    assert plan.checkpoint_bytes == 12 * plan.parameters
    assert plan.checkpoints == 3
    assert plan.fits


RAMP = [
    {"tokens": 409_600, "global_batch": 8192},
    {"tokens": 614_400, "sequence": 1024, "weights": {}},
]


def test_milestones_are_part_of_the_plan():
    plan = make_plan(recipe(data={"sequence": 256, "milestones": RAMP}), MACHINE)
    assert [(p.first_step, p.steps, p.batch, p.sequence) for p in plan.phases] == [
        (0, 100, 16, 256),
        (100, 25, 32, 256),
        (125, 47, 8, 1024),
    ]
    assert plan.steps == 172
    assert plan.tokens == 100 * 4096 + 72 * 8192
    assert plan.checkpoints == 2
    assert plan.step_seconds == pytest.approx(sum(plan.step.values()))
    assert plan.tokens_per_s == pytest.approx(plan.tokens / 172 / plan.step_seconds)
    shape = preset_shape("nano-5m")
    assert plan.flops == pytest.approx(
        flops_per_token(shape, 256) * (100 * 4096 + 25 * 8192)
        + flops_per_token(shape, 1024) * 47 * 8192
    )
    assert "from step 125 on: 8.19K a step, sequence 1024" in plan.render()
    assert json.loads(json.dumps(plan.to_dict()))["phases"][2]["sequence"] == 1024


def test_the_micro_batch_fits_where_the_sequence_is_longest():
    ramp = {"tokens": 4096, "sequence": 2048, "global_batch": 32_768}
    keys = {"sequence": 256, "milestones": [ramp]}
    short, grown = (
        choose_layout(recipe(data=data), memory=int(1.5 * GIB)).micro_batch
        for data in ({"sequence": 256}, keys)
    )
    assert grown < short
    plan = make_plan(recipe(data=keys), dataclasses.replace(MACHINE, memory=int(1.5 * GIB)))
    assert plan.fits
    alone = recipe(data={"sequence": 2048}, train={"tokens": "1M", "global_batch": 32_768})
    assert plan.memory_total <= make_plan(alone, MACHINE).memory_total


def test_a_later_batch_that_the_ranks_do_not_divide_is_said_in_the_plan():
    keys = {"sequence": 256, "milestones": [{"tokens": 8192, "global_batch": 256 * 9}]}
    with pytest.raises(UsageError, match="from step 2 on the global batch has 9 sequences"):
        choose_layout(recipe(data=keys), memory=16 * GIB)
    assert choose_layout(recipe(data=keys | {"ragged": True}), memory=16 * GIB).data == 2


def test_the_vocabulary_is_the_tokenizers_that_the_recipe_will_train():
    assert make_plan(recipe(tokenizer={"vocab_size": 1024}), MACHINE).parameters < 4_852_224
    assert make_plan(recipe(), MACHINE, vocab_size=1024).parameters < 4_852_224


def test_what_does_not_fit_says_so():
    plan = make_plan(recipe(model={"preset": "falcon-40b"}), MACHINE)
    assert not plan.fits
    assert plan.layout.micro_batch == 1
    assert "DOES NOT FIT" in plan.render()
    assert "DOES NOT FIT" not in make_plan(recipe(), MACHINE).render()


def test_a_plan_is_plain_json():
    plan = make_plan(recipe(), MACHINE)
    values = json.loads(json.dumps(plan.to_dict()))
    assert values["layout"] == {"tensor": 1, "data": 2, "micro_batch": 8, "world": 2}
    assert values["memory"] == dict(plan.memory)
    assert values["step"] == pytest.approx(dict(plan.step))
    assert values["machine"]["matmul_rate"] == 50e9
    assert values["fits"] is True


def test_the_text_fits_a_screen_and_names_what_matters():
    text = make_plan(recipe(), MACHINE).render()
    assert len(text.splitlines()) < 12
    for word in ("4,852,224 parameters", "tensor 1 x data 2", "activations", "tokens/s", "matmul"):
        assert word in text


@pytest.mark.parametrize("as_json", [False, True])
def test_a_run_is_held_against_its_plan(as_json):
    plan = make_plan(recipe(), MACHINE)
    actual = {"peak_memory": 2 * plan.memory_total, "step_seconds": plan.step_seconds / 2, "x": 1}
    rows = compare(plan.to_dict() if as_json else plan, actual)
    assert [row.name for row in rows] == ["peak memory a rank", "seconds a step"]
    assert [row.ratio for row in rows] == pytest.approx([2.0, 0.5])
    assert rows[0].planned_text.endswith("MiB")
    assert rows[1].actual_text.endswith(" s")
    assert json.dumps(rows[0].to_dict())


def test_making_a_plan_loads_no_torch():
    import subprocess
    import sys

    code = "import sys, eyas.plan, eyas.shape; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_plan_without_a_machine_measures_this_one():
    small = recipe(model={"preset": "nano-1m"}, tokenizer={"vocab_size": 512})
    plan = make_plan(small)
    assert isinstance(plan, Plan)
    assert plan.machine.processes == 2
    assert plan.machine.matmul_rate > 1e8
    assert plan.memory_available == int(0.85 * plan.machine.memory) // 2
