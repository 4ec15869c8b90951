from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from eyas.checkpoint.slices import Box, intersect, tiling_fault

from .cuts import partitions


@settings(deadline=None)
@given(partitions())
def test_any_partition_tiles(case):
    shape, boxes = case
    assert tiling_fault(shape, boxes) is None


@settings(deadline=None)
@given(partitions(), st.data())
def test_a_slice_left_out_is_found(case, data):
    shape, boxes = case
    gone = data.draw(st.integers(0, len(boxes) - 1))
    fault = tiling_fault(shape, boxes[:gone] + boxes[gone + 1 :])
    assert (fault is None) == (boxes[gone].volume == 0)


@settings(deadline=None)
@given(partitions(), st.data())
def test_a_slice_saved_twice_is_found(case, data):
    shape, boxes = case
    box = data.draw(st.sampled_from(boxes))
    fault = tiling_fault(shape, [*boxes, box])
    assert (fault is None) == (box.volume == 0)


def test_slices_whose_volumes_add_up_but_overlap_are_found():
    boxes = [Box((0, 0), (2, 4)), Box((1, 0), (2, 4))]
    assert "overlap" in str(tiling_fault((4, 4), boxes))


def test_a_slice_outside_the_tensor_is_found():
    assert "outside" in str(tiling_fault((4,), [Box((2,), (3,))]))
    assert "outside" in str(tiling_fault((4,), [Box((0, 0), (2, 2))]))


def test_a_pinwheel_that_no_straight_cut_divides_tiles():
    boxes = [
        Box((0, 0), (1, 2)),
        Box((0, 2), (2, 1)),
        Box((2, 1), (1, 2)),
        Box((1, 0), (2, 1)),
        Box((1, 1), (1, 1)),
    ]
    assert tiling_fault((3, 3), boxes) is None
    assert "in no slice" in str(tiling_fault((3, 3), boxes[:-1]))


def test_a_grid_of_4096_ranks_is_checked_without_comparing_all_pairs(monkeypatch):
    monkeypatch.setattr("eyas.checkpoint.slices._overlap_by_pairs", None)
    boxes = [Box((r * 4, c * 8), (4, 8)) for r in range(512) for c in range(8)]
    assert tiling_fault((2048, 64), boxes) is None


def test_boxes_that_touch_share_nothing():
    assert intersect(Box((0, 0), (2, 2)), Box((2, 0), (2, 2))) is None
    assert intersect(Box((0, 0), (3, 2)), Box((2, 1), (2, 2))) == Box((2, 1), (1, 1))
    assert intersect(Box((), ()), Box((), ())) == Box((), ())
