"""The network, its initial weights, its loss, and the model that answers."""

from .falcon_names import from_falcon, to_falcon
from .initial import initial_slice, initial_weights
from .loss import loss, projected_loss
from .model import Completion, Model, Piece, TextTokenizer, TokenLogprob
from .network import Cache, Network, network_from

__all__ = [
    "Cache",
    "Completion",
    "Model",
    "Network",
    "Piece",
    "TextTokenizer",
    "TokenLogprob",
    "from_falcon",
    "initial_slice",
    "initial_weights",
    "loss",
    "network_from",
    "projected_loss",
    "to_falcon",
]
