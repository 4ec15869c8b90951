"""The network, its initial weights, its loss, and the model that answers."""

from .accumulate import accumulate_into
from .hugging_face import family_of, from_hugging_face, to_hugging_face
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
    "accumulate_into",
    "family_of",
    "from_hugging_face",
    "initial_slice",
    "initial_weights",
    "loss",
    "network_from",
    "projected_loss",
    "to_hugging_face",
]
