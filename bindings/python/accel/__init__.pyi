"""For type checkers, and the table of what __init__.py loads when it is asked for."""

from typing import List

from . import capi as capi, data as data, state as state, tracking as tracking, utils as utils
from .big_models import big_modeling as big_modeling
from .data import data_loader as data_loader
from .generated import errors as errors
from .launch import launchers as launchers
from .modules import model_hooks as hooks, nn as nn
from .parallel import collectives as collectives, parallelism_config as parallelism_config
from .generated import enums as enums
from .state import handlers as handlers, random as random
from .tensors import device as device, dtypes as dtypes, functional as functional, ops as ops
from .tracking import logging as logging, profiling as profiling, progress as progress
from .training import lr_scheduler as lr_scheduler, optim as optim
from .training.accelerator import Accelerator as Accelerator
from .modules.adapters import use_adapters as use_adapters
from .compat.availability import is_rich_available as is_rich_available
from .tensors.autograd import enable_grad as enable_grad, inference_mode as inference_mode, no_grad as no_grad
from .big_models.big_modeling import cpu_offload as cpu_offload, cpu_offload_with_hook as cpu_offload_with_hook, disk_offload as disk_offload, dispatch_model as dispatch_model, load_checkpoint_and_dispatch as load_checkpoint_and_dispatch
from .checkpoint.files import load as load, save as save
from .data.loader import DataLoader as DataLoader, Dataset as Dataset, IterableDataset as IterableDataset, Subset as Subset, TensorDataset as TensorDataset, TextDataset as TextDataset
from .data.tokenizer import DecodeStream as DecodeStream, Tokenizer as Tokenizer
from .modules.generation_batch import GenerationBatch as GenerationBatch
from .data.data_loader import skip_first_batches as skip_first_batches
from .parallel.deepspeed import DeepSpeedPlugin as DeepSpeedPlugin
from .tensors.device import Device as Device
from .big_models.init_on_device import init_empty_weights as init_empty_weights, init_on_device as init_on_device
from .big_models.device_maps import infer_auto_device_map as infer_auto_device_map
from .tensors.dtypes import DType as DType, bfloat16 as bfloat16, bool as bool, float16 as float16, float32 as float32, float64 as float64, int16 as int16, int32 as int32, int64 as int64, int8 as int8, uint8 as uint8
from .generated.enums import DDPCommunicationHookType as DDPCommunicationHookType, DistributedType as DistributedType, LoggerType as LoggerType, PrecisionType as PrecisionType, RNGType as RNGType
from .generated.errors import Error as Error
from .parallel.fsdp import FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin
from .parallel.gathered_parameters import GatheredParameters as GatheredParameters
from .generated.settings import AutocastKwargs as AutocastKwargs, GradScalerKwargs as GradScalerKwargs, GradientAccumulationPlugin as GradientAccumulationPlugin, PowerSGDKwargs as PowerSGDKwargs
from .parallel.ddp import DistributedDataParallelKwargs as DistributedDataParallelKwargs
from .state.handlers import DataLoaderConfiguration as DataLoaderConfiguration, InitProcessGroupKwargs as InitProcessGroupKwargs, ProjectConfiguration as ProjectConfiguration
from .launch.launchers import debug_launcher as debug_launcher, notebook_launcher as notebook_launcher
from .parallel.local_sgd import LocalSGD as LocalSGD
from .state.memory import find_executable_batch_size as find_executable_batch_size, release_memory as release_memory
from .engine.objects import allow_pickle as allow_pickle
from .training.own_gradients import OwnGradients as OwnGradients
from .parallel.parallelism_config import Mesh as Mesh, ParallelismConfig as ParallelismConfig
from .parallel.pipeline_inference import prepare_pippy as prepare_pippy
from .parallel.split_operators import parallel_all_to_all as parallel_all_to_all, parallel_copy as parallel_copy, parallel_gather as parallel_gather, parallel_reduce as parallel_reduce, parallel_reduce_scatter as parallel_reduce_scatter, parallel_scatter as parallel_scatter
from .tracking.profiling import ProfileKwargs as ProfileKwargs
from .tracking.progress import ProgressBar as ProgressBar, tqdm as tqdm
from .state.random import Generator as Generator, set_seed as set_seed, synchronize_rng_states as synchronize_rng_states
from .training.registered_parameters import RegisteredParameters as RegisteredParameters, register_parameters as register_parameters
from .state.process import AcceleratorState as AcceleratorState, GradientState as GradientState, Group as Group, PartialState as PartialState
from .tensors.tensor import Tensor as Tensor
from .tensors.creation import arange as arange, as_tensor as as_tensor, empty as empty, from_dlpack as from_dlpack, full as full, ones as ones, rand as rand, randint as randint, randn as randn, tensor as tensor, zeros as zeros
from .tracking.tracker import GeneralTracker as GeneralTracker
from .big_models.weights import load_checkpoint_in_model as load_checkpoint_in_model
from .engine.work import Work as Work

__version__: str
__all__: List[str]
