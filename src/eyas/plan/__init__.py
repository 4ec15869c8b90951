"""Memory, time and layout of a run before it starts, held against it when it has ended."""

from .compare import Row, compare
from .machine import Machine, measure_machine
from .plan import Plan, choose_layout, make_plan

__all__ = [
    "Machine",
    "Plan",
    "Row",
    "choose_layout",
    "compare",
    "make_plan",
    "measure_machine",
]
