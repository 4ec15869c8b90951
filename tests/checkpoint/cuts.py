"""Hypothesis strategies for shapes, boxes of them, and partitions by straight cuts of cuts."""

from __future__ import annotations

from hypothesis import strategies as st

from eyas.checkpoint.slices import Box

__all__ = ["boxes_of", "partitions", "shapes"]


def shapes() -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(1, 9), min_size=0, max_size=3).map(tuple)


@st.composite
def boxes_of(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    low = [draw(st.integers(0, size - 1)) for size in shape]
    high = [draw(st.integers(a + 1, size)) for a, size in zip(low, shape, strict=True)]
    return Box(tuple(low), tuple(b - a for a, b in zip(low, high, strict=True)))


@st.composite
def partitions(draw: st.DrawFn, most: int = 8) -> tuple[tuple[int, ...], list[Box]]:
    """(shape, boxes): the whole, cut again and again; an empty box is possible."""
    shape = draw(shapes())
    boxes = [Box((0,) * len(shape), shape)]
    for _ in range(draw(st.integers(0, most)) if shape else 0):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        dim = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(0, box.shape[dim]))
        first = tuple(at if d == dim else s for d, s in enumerate(box.shape))
        rest = tuple(s - at if d == dim else s for d, s in enumerate(box.shape))
        offset = tuple(o + at if d == dim else o for d, o in enumerate(box.offset))
        boxes += [Box(box.offset, first), Box(offset, rest)]
    return shape, draw(st.permutations(boxes))
