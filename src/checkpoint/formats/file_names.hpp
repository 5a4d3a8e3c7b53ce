// SPDX-License-Identifier: Apache-2.0
// Names of files in checkpoints and folders of models, those of Accelerate. @accelerate utils.constants
#pragma once

namespace accel::checkpoint {

inline constexpr const char* kModelName = "pytorch_model";
inline constexpr const char* kFsdpModelName = "pytorch_model_fsdp";
inline constexpr const char* kSafeModelName = "model";
inline constexpr const char* kOptimizerName = "optimizer";
inline constexpr const char* kSchedulerName = "scheduler";
inline constexpr const char* kSamplerName = "sampler";
inline constexpr const char* kScalerName = "scaler.pt";
inline constexpr const char* kRngStateName = "random_states";
inline constexpr const char* kDataloaderStateName = "dl_state_dict";
inline constexpr const char* kCustomCheckpointName = "custom_checkpoint";

// "{suffix}" is "" for the only file, otherwise "-00001-of-00004".
inline constexpr const char* kWeightsName = "pytorch_model.bin";
inline constexpr const char* kWeightsPatternName = "pytorch_model{suffix}.bin";
inline constexpr const char* kWeightsIndexName = "pytorch_model.bin.index.json";
inline constexpr const char* kSafeWeightsName = "model.safetensors";
inline constexpr const char* kSafeWeightsPatternName = "model{suffix}.safetensors";
inline constexpr const char* kSafeWeightsIndexName = "model.safetensors.index.json";
inline constexpr const char* kProfilePatternName = "profile_{suffix}.json";

inline constexpr const char* kIndexExtension = ".index.json";

}  // namespace accel::checkpoint
