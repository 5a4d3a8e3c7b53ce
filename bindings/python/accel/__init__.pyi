"""For type checkers, and the table of what __init__.py loads when it is asked for."""

from typing import List

from . import big_modeling as big_modeling, capi as capi, collectives as collectives, data as data, data_loader as data_loader, device as device, dtypes as dtypes, enums as enums, errors as errors, functional as functional, handlers as handlers, hooks as hooks, launchers as launchers, logging as logging, lr_scheduler as lr_scheduler, nn as nn, ops as ops, optim as optim, parallelism_config as parallelism_config, profiling as profiling, progress as progress, random as random, state as state, tracking as tracking, utils as utils
from .accelerator import Accelerator as Accelerator
from .availability import is_rich_available as is_rich_available
from .autograd import enable_grad as enable_grad, inference_mode as inference_mode, no_grad as no_grad
from .big_modeling import cpu_offload as cpu_offload, cpu_offload_with_hook as cpu_offload_with_hook, disk_offload as disk_offload, dispatch_model as dispatch_model, init_empty_weights as init_empty_weights, init_on_device as init_on_device, load_checkpoint_and_dispatch as load_checkpoint_and_dispatch
from .checkpoint import load as load, save as save
from .data import DataLoader as DataLoader, Dataset as Dataset, IterableDataset as IterableDataset, Subset as Subset, TensorDataset as TensorDataset, TextDataset as TextDataset
from .data_loader import skip_first_batches as skip_first_batches
from .deepspeed import DeepSpeedPlugin as DeepSpeedPlugin
from .device import Device as Device
from .device_maps import infer_auto_device_map as infer_auto_device_map
from .dtypes import DType as DType, bfloat16 as bfloat16, bool as bool, float16 as float16, float32 as float32, float64 as float64, int16 as int16, int32 as int32, int64 as int64, int8 as int8, uint8 as uint8
from .enums import DDPCommunicationHookType as DDPCommunicationHookType, DistributedType as DistributedType, LoggerType as LoggerType, PrecisionType as PrecisionType, RNGType as RNGType
from .errors import Error as Error
from .fsdp import FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin
from .gathered_parameters import GatheredParameters as GatheredParameters
from .handlers import AutocastKwargs as AutocastKwargs, DataLoaderConfiguration as DataLoaderConfiguration, DistributedDataParallelKwargs as DistributedDataParallelKwargs, GradScalerKwargs as GradScalerKwargs, GradientAccumulationPlugin as GradientAccumulationPlugin, InitProcessGroupKwargs as InitProcessGroupKwargs, PowerSGDKwargs as PowerSGDKwargs, ProjectConfiguration as ProjectConfiguration
from .launchers import debug_launcher as debug_launcher, notebook_launcher as notebook_launcher
from .local_sgd import LocalSGD as LocalSGD
from .memory import find_executable_batch_size as find_executable_batch_size, release_memory as release_memory
from .objects import allow_pickle as allow_pickle
from .own_gradients import OwnGradients as OwnGradients
from .parallelism_config import Mesh as Mesh, ParallelismConfig as ParallelismConfig
from .profiling import ProfileKwargs as ProfileKwargs
from .progress import ProgressBar as ProgressBar, tqdm as tqdm
from .random import Generator as Generator, set_seed as set_seed, synchronize_rng_states as synchronize_rng_states
from .registered_parameters import RegisteredParameters as RegisteredParameters, register_parameters as register_parameters
from .state import AcceleratorState as AcceleratorState, GradientState as GradientState, Group as Group, PartialState as PartialState
from .tensors import Tensor as Tensor
from .creation import arange as arange, as_tensor as as_tensor, empty as empty, from_dlpack as from_dlpack, full as full, ones as ones, rand as rand, randint as randint, randn as randn, tensor as tensor, zeros as zeros
from .tracking import GeneralTracker as GeneralTracker
from .weights import load_checkpoint_in_model as load_checkpoint_in_model
from .work import Work as Work

__version__: str
__all__: List[str]
