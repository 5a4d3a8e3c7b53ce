"""Questions about this machine."""

from .config import get_user_input as get_cluster_input

__all__ = ["get_cluster_input"]
