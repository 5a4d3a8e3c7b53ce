// SPDX-License-Identifier: Apache-2.0
// BERT, RoBERTa and DistilBERT, with the names of transformers' models and their heads.
#pragma once

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// `architectures` of the configuration says which model: "BertModel", "BertForSequenceClassification", ...; without it
// the model without a head.
ModulePtr build_bert(const Json& config);
ModulePtr build_roberta(const Json& config);
ModulePtr build_distilbert(const Json& config);

}  // namespace accel::nn
