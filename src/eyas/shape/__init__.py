"""Arithmetic of shapes, torch-free: the tensors of a model, their cost, which layouts are legal."""

from .layout import (
    Layout,
    check_layout,
    legal_layouts,
    slice_holders,
    tensor_slices,
)
from .model_shape import ModelShape
from .parameters import flops_per_token, matmul_parameters, parameter_table, parameters
from .presets import model_shape, preset_names, preset_shape

__all__ = [
    "Layout",
    "ModelShape",
    "check_layout",
    "flops_per_token",
    "legal_layouts",
    "matmul_parameters",
    "model_shape",
    "parameter_table",
    "parameters",
    "preset_names",
    "preset_shape",
    "slice_holders",
    "tensor_slices",
]
