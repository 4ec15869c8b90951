"""The recipe: a TOML file in, one typed, validated value out, hashed by section."""

from .commented import commented_recipe
from .errors import EyasError, UsageError
from .phases import Phase, merged_phases, planned_steps, recipe_phases
from .recipe import Recipe, parse_override
from .sections import (
    Chain,
    Cluster,
    Corpus,
    Data,
    DataSource,
    Judge,
    LayoutKeys,
    Milestone,
    ModelKeys,
    Serve,
    TokenizerKeys,
    Train,
    Watch,
)
from .values import format_bytes, format_count, format_seconds, parse_count, parse_duration

__all__ = [
    "Chain",
    "Cluster",
    "Corpus",
    "Data",
    "DataSource",
    "EyasError",
    "Judge",
    "LayoutKeys",
    "Milestone",
    "ModelKeys",
    "Phase",
    "Recipe",
    "Serve",
    "TokenizerKeys",
    "Train",
    "UsageError",
    "Watch",
    "commented_recipe",
    "format_bytes",
    "format_count",
    "format_seconds",
    "merged_phases",
    "parse_count",
    "parse_duration",
    "parse_override",
    "planned_steps",
    "recipe_phases",
]
