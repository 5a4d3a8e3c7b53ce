"""Questions about SageMaker, which the program asks with the others."""

from .config import get_user_input as get_sagemaker_input

__all__ = ["get_sagemaker_input"]
