// SPDX-License-Identifier: Apache-2.0
// Keys of the sections data, memory.
#include "key_fields.h"

namespace bantam {
namespace {

std::vector<std::pair<std::string, std::string>> type_synonyms() {
  return {{"completion", "text"}, {"chat_template", "chat"}, {"conversation", "chat"},  {"sharegpt", "chat"},
          {"messages", "chat"},   {"openai", "chat"},        {"conversational", "chat"}};
}

void add_data(KeyList& t) {
  t.push_back(
      with_field<&Recipe::datasets>({.name = "datasets",
                                     .section = "data",
                                     .type = KeyType::datasets,
                                     .help = "What to train on: a list of {path, type, weight, field_...}; a plain "
                                             "path will do.",
                                     .aliases = {{"data"}},
                                     .required = true}));
  t.push_back(with_field<&Recipe::type>(
      {.name = "type",
       .section = "data",
       .type = KeyType::choice,
       .help = "Shape of the rows of datasets that name no type; auto: by the fields of the first row.",
       .values = dataset_types(),
       .synonyms = type_synonyms()}));
  t.push_back(with_field<&Recipe::test_datasets>({.name = "test_datasets",
                                                  .section = "data",
                                                  .type = KeyType::datasets,
                                                  .help = "What to evaluate on; the same list as datasets."}));
  t.push_back(with_field<&Recipe::val_set_size>(
      {.name = "val_set_size",
       .section = "data",
       .type = KeyType::steps,
       .help = "Rows taken out of the training data for evaluation: a count, or a fraction below 1.",
       .range = at_least(0),
       .aliases = {{"val_size"}, {"validation_split_ratio"}}}));
  t.push_back(with_field<&Recipe::train_on_inputs>(
      {.name = "train_on_inputs",
       .section = "data",
       .type = KeyType::boolean,
       .help = "Train on the prompts too, not only on the answers.",
       .aliases = {{"train_on_prompt"}, {"train_on_input"}, {"mask_prompt", AliasKind::negated}}}));
  t.push_back(with_field<&Recipe::roles_to_train>({.name = "roles_to_train",
                                                   .section = "data",
                                                   .type = KeyType::list,
                                                   .help = "Whose chat messages are trained.",
                                                   .since = Since::data}));
  t.push_back(with_field<&Recipe::train_on_eos>(
      {.name = "train_on_eos",
       .section = "data",
       .type = KeyType::choice,
       .help =
           "Which end-of-turn tokens of chat rows are trained: turn, those of trained messages; last, only the last "
           "of these; all, of all messages.",
       .since = Since::data,
       .values = {{"turn"}, {"last"}, {"all"}, {"none"}},
       .aliases = {{"train_on_eot"}}}));
  t.push_back(with_field<&Recipe::max_seq_length>(
      {.name = "max_seq_length",
       .section = "data",
       .type = KeyType::integer,
       .help = "Longest row in tokens; never above the model's own limit. Turn gradient_checkpointing on before "
               "lowering it.",
       .range = from_to(8, 1 << 24),
       .aliases = {{"sequence_len"}, {"max_length"}, {"cutoff_len"}, {"max_seq_len"}, {"seq_len"}}}));
  t.push_back(with_field<&Recipe::excess_length_strategy>(
      {.name = "excess_length_strategy",
       .section = "data",
       .type = KeyType::choice,
       .help = "What happens to rows over max_seq_length. Each such row is counted and reported.",
       .values = {{"drop"}, {"truncate"}, {"split"}, {"raise"}},
       .aliases = {{"truncation_strategy"}}}));
  t.push_back(with_field<&Recipe::max_excess_fraction>(
      {.name = "max_excess_fraction",
       .section = "data",
       .type = KeyType::number,
       .help = "Stop when more than this share of the rows is over max_seq_length.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .range = from_to(0, 1)}));
  t.push_back(with_field<&Recipe::max_malformed_rows>(
      {.name = "max_malformed_rows",
       .section = "data",
       .type = KeyType::integer,
       .help = "How many rows may be left out, each reported, because they cannot be used: broken JSON or CSV, invalid "
               "UTF-8, a field that is missing, a conversation that the chat template refuses. One more stops.",
       .since = Since::data,
       .range = from_to(0, 1e9)}));
  t.push_back(with_field<&Recipe::normalize_newlines>(
      {.name = "normalize_newlines",
       .section = "data",
       .type = KeyType::boolean,
       .help = "Turn carriage returns inside of texts into line feeds. They are kept, and counted, otherwise.",
       .since = Since::data}));
  t.push_back(with_field<&Recipe::sample_packing>(
      {.name = "sample_packing",
       .section = "data",
       .type = KeyType::boolean,
       .help = "Put several short rows into one strip of max_seq_length tokens. Rows do not see each other.",
       .aliases = {{"packing"}, {"packed"}, {"neat_packing"}}}));
  t.push_back(with_field<&Recipe::dataset_prepared_path>(
      {.name = "dataset_prepared_path",
       .section = "data",
       .type = KeyType::path,
       .help =
           "Folder where tokenised data are kept for the next start: cache (the program's cache folder), none, or a "
           "path.",
       .since = Since::data,
       .changes_results = kNoResult,
       .resume = Resume::free,
       .words = {"cache", "none"}}));
}

void add_memory(KeyList& t) {
  t.push_back(with_every_n(
      {.name = "gradient_checkpointing",
       .section = "memory",
       .type = KeyType::choice,
       .help = "Which activations are kept for the backward pass. true: each layer's input, the rest is computed "
               "again; false: "
               "all; selective: all but what is nearly free to compute again; sqrt, {every_n: k}: the input of every "
               "sqrt(layers)-th, k-th layer; auto: the fastest schedule that fits into memory_limit. Results do not "
               "change.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .values = {{"auto"}, {"true"}, {"false"}, {"selective"}, {"sqrt"}, {"every_n"}},
       .aliases = {{"enable_activation_checkpointing"},
                   {"grad_checkpoint"},
                   {"recompute"},
                   {"use_gradient_checkpointing"},
                   {"disable_gradient_checkpointing", AliasKind::negated}},
       .synonyms = {{"unsloth", "true"}},
       .refusals = {{"offload*", "offloading to the host is a key of its own: activation_offloading: true"}}}));
  t.push_back(with_field<&Recipe::selective_checkpointing>(
      {.name = "selective_checkpointing",
       .section = "memory",
       .type = KeyType::save,
       .help =
           "{save: [value names]}: what gradient_checkpointing: selective keeps of a layer, instead of its own choice.",
       .changes_results = kNoResult,
       .resume = Resume::free}));
  t.push_back(with_field<&Recipe::memory_limit>(
      {.name = "memory_limit",
       .section = "memory",
       .type = KeyType::size,
       .help = "Most memory the run may take; auto: what is free, less memory_reserve.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .range = at_least(1 << 20),
       .word = "auto"}));
  t.push_back(with_field<&Recipe::memory_reserve>({.name = "memory_reserve",
                                                   .section = "memory",
                                                   .type = KeyType::size,
                                                   .help = "Left to others where memory_limit is auto.",
                                                   .changes_results = kNoResult,
                                                   .resume = Resume::free,
                                                   .range = at_least(0)}));
  t.push_back(with_field<&Recipe::loss_chunk_bytes>(
      {.name = "loss_chunk_bytes",
       .section = "memory",
       .type = KeyType::size,
       .help = "Scratch of the chunked loss; rows per chunk follow from it. Results do not depend on it.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .range = at_least(1024)}));
  t.push_back(with_field<&Recipe::activation_offloading>(
      {.name = "activation_offloading",
       .section = "memory",
       .type = KeyType::boolean,
       .help =
           "On a GPU: the layer inputs that gradient_checkpointing keeps wait in host memory, copied while the layers "
           "compute; with auto where that pays, else all of them. Results do not change.",
       .since = Since::cuda,
       .changes_results = kNoResult,
       .resume = Resume::free,
       .aliases = {{"enable_activation_offloading"}}}));
  t.push_back(with_field<&Recipe::on_does_not_fit>(
      {.name = "on_does_not_fit",
       .section = "memory",
       .type = KeyType::choice,
       .help =
           "When the plan is over the limit. error: stop, and say what would fit; adjust: checkpointing on, a smaller "
           "loss chunk, then smaller micro-batches with more accumulation. Rows are never cut shorter for it.",
       .values = {{"error"}, {"adjust"}}}));
}

}  // namespace

void add_data_keys(KeyList& t) {
  add_data(t);
  add_memory(t);
}

}  // namespace bantam
