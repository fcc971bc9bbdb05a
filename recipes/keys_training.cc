// SPDX-License-Identifier: Apache-2.0
// Keys of the sections training, eval, output, export.
#include "key_fields.h"

namespace bantam {
namespace {

void add_training(KeyList& t) {
  t.push_back(with_field<&Recipe::micro_batch_size>(
      {.name = "micro_batch_size",
       .section = "training",
       .type = KeyType::integer,
       .help = "Rows (or strips of packed rows) that are computed at once: time per row falls, memory grows. auto: the "
               "largest that fits, with effective_batch_size.",
       .range = from_to(1, 1 << 20),
       .word = "auto",
       .aliases = {{"per_device_train_batch_size"}}}));
  t.push_back(
      with_field<&Recipe::gradient_accumulation_steps>({.name = "gradient_accumulation_steps",
                                                        .section = "training",
                                                        .type = KeyType::integer,
                                                        .help = "Micro-batches per optimiser step; costs no memory.",
                                                        .range = from_to(1, 1 << 20),
                                                        .aliases = {{"grad_accum"}, {"grad_accumulation_steps"}}}));
  t.push_back(with_field<&Recipe::effective_batch_size>(
      {.name = "effective_batch_size",
       .section = "training",
       .type = KeyType::integer,
       .help = "Instead of gradient_accumulation_steps: rows per optimiser step, a multiple of micro_batch_size.",
       .range = from_to(1, 1 << 30),
       .word = "none"}));
  t.push_back(with_field<&Recipe::num_epochs>({.name = "num_epochs",
                                               .section = "training",
                                               .type = KeyType::number,
                                               .help = "Passes over the data; fractions are fine.",
                                               .resume = Resume::on_demand,
                                               .range = {.min = 0, .max = 1e6, .above_min = true},
                                               .aliases = {{"num_train_epochs"}, {"epochs"}}}));
  t.push_back(with_field<&Recipe::max_steps>({.name = "max_steps",
                                              .section = "training",
                                              .type = KeyType::integer,
                                              .help = "Optimiser steps; takes precedence over num_epochs.",
                                              .resume = Resume::on_demand,
                                              .range = from_to(1, 1e12),
                                              .word = "none",
                                              .synonyms = {{"-1", "none"}}}));
  t.push_back(with_field<&Recipe::optimizer>(
      {.name = "optimizer",
       .section = "training",
       .type = KeyType::choice,
       .help = "The optimiser of the adapters.",
       .values = {{"adamw"}, {"adamw_8bit", Since::models}},
       .aliases = {{"optim"}},
       .synonyms = {{"adamw_torch", "adamw"},
                    {"adamw_torch_fused", "adamw"},
                    {"adamw_hf", "adamw"},
                    {"adamw_bnb_8bit", "adamw_8bit"}},
       .refusals = {
           {"paged_*", "paged optimisers move their state between devices; the state here is small, use adamw"}}}));
  t.push_back(with_field<&Recipe::learning_rate>({.name = "learning_rate",
                                                  .section = "training",
                                                  .type = KeyType::number,
                                                  .help = "Highest learning rate.",
                                                  .resume = Resume::on_demand,
                                                  .range = {.min = 0, .max = 1, .above_min = true},
                                                  .aliases = {{"lr"}}}));
  t.push_back(with_field<&Recipe::weight_decay>({.name = "weight_decay",
                                                 .section = "training",
                                                 .type = KeyType::number,
                                                 .help = "Decoupled weight decay of the adapters.",
                                                 .resume = Resume::on_demand,
                                                 .range = at_least(0)}));
  t.push_back(with_field<&Recipe::adam_beta1>({.name = "adam_beta1",
                                               .section = "training",
                                               .type = KeyType::number,
                                               .help = "Decay of AdamW's first moment.",
                                               .resume = Resume::on_demand,
                                               .range = from_below(0, 1)}));
  t.push_back(with_field<&Recipe::adam_beta2>({.name = "adam_beta2",
                                               .section = "training",
                                               .type = KeyType::number,
                                               .help = "Decay of AdamW's second moment.",
                                               .resume = Resume::on_demand,
                                               .range = from_below(0, 1)}));
  t.push_back(with_field<&Recipe::adam_epsilon>({.name = "adam_epsilon",
                                                 .section = "training",
                                                 .type = KeyType::number,
                                                 .help = "AdamW's epsilon.",
                                                 .resume = Resume::on_demand,
                                                 .range = above(0)}));
  t.push_back(with_field<&Recipe::max_grad_norm>({.name = "max_grad_norm",
                                                  .section = "training",
                                                  .type = KeyType::number,
                                                  .help = "Gradients are scaled down to this norm; 0: never.",
                                                  .resume = Resume::on_demand,
                                                  .range = at_least(0),
                                                  .aliases = {{"clip_grad_norm"}, {"grad_clip"}}}));
  t.push_back(with_field<&Recipe::lr_scheduler>({.name = "lr_scheduler",
                                                 .section = "training",
                                                 .type = KeyType::choice,
                                                 .help = "Course of the learning rate after the warm-up.",
                                                 .values = {{"cosine"},
                                                            {"linear"},
                                                            {"constant"},
                                                            {"cosine_with_min_lr", Since::models},
                                                            {"wsd", Since::models},
                                                            {"polynomial", Since::models},
                                                            {"inverse_sqrt", Since::models}},
                                                 .aliases = {{"lr_scheduler_type"}},
                                                 .synonyms = {{"constant_with_warmup", "constant"}}}));
  t.push_back(with_field<&Recipe::warmup_steps>(
      {.name = "warmup_steps",
       .section = "training",
       .type = KeyType::steps,
       .help = "Steps in which the learning rate rises: a count, or a fraction below 1 of all steps.",
       .range = at_least(0),
       .aliases = {{"warmup_ratio", AliasKind::fraction}}}));
  t.push_back(with_field<&Recipe::longest_batch_first>(
      {.name = "longest_batch_first",
       .section = "training",
       .type = KeyType::boolean,
       .help = "The step with the longest micro-batch comes first, so that the worst case is over at once."}));
  t.push_back(with_field<&Recipe::seed>({.name = "seed",
                                         .section = "training",
                                         .type = KeyType::integer,
                                         .help = "Seed of the data order, the adapters' start and dropout.",
                                         .range = at_least(0)}));
}

void add_eval(KeyList& t) {
  t.push_back(with_field<&Recipe::eval_steps>(
      {.name = "eval_steps",
       .section = "eval",
       .type = KeyType::steps,
       .help = "Steps between evaluations: a count, a fraction below 1 of all steps, or epoch (at the end of each). "
               "There is "
               "always one at step 0 and one at the end.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .range = above(0),
       .word = "epoch",
       .aliases = {{"evals_per_epoch", AliasKind::per_epoch},
                   {"eval_strategy", AliasKind::mapped, {{"epoch", "epoch"}, {"steps", ""}, {"false", ""}}},
                   {"evaluation_strategy", AliasKind::mapped, {{"epoch", "epoch"}, {"steps", ""}, {"false", ""}}}}}));
  t.push_back({.name = "early_stopping_patience",
               .section = "eval",
               .type = KeyType::opaque,
               .help = "Evaluations without improvement before the run stops.",
               .since = Since::rel,
               .resume = Resume::free,
               .later_default = "none"});
  t.push_back({.name = "eval_sample_prompts",
               .section = "eval",
               .type = KeyType::opaque,
               .help = "Prompts that are answered at each evaluation.",
               .since = Since::rel,
               .changes_results = kNoResult,
               .resume = Resume::free,
               .later_default = "none"});
}

void add_output(KeyList& t) {
  t.push_back(
      with_field<&Recipe::output_dir>({.name = "output_dir",
                                       .section = "output",
                                       .type = KeyType::path,
                                       .help = "Folder of the run: adapter, checkpoints, metrics, resolved recipe.",
                                       .changes_results = kNoResult,
                                       .resume = Resume::ignored,
                                       .aliases = {{"out_dir"}},
                                       .required = true}));
  t.push_back(with_field<&Recipe::save_steps>(
      {.name = "save_steps",
       .section = "output",
       .type = KeyType::steps,
       .help = "Steps between checkpoints: a count, a fraction below 1 of all steps, or epoch (at the end of each).",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .range = above(0),
       .word = "epoch",
       .aliases = {{"saves_per_epoch", AliasKind::per_epoch},
                   {"save_strategy", AliasKind::mapped, {{"epoch", "epoch"}, {"steps", ""}}}}}));
  t.push_back(with_field<&Recipe::save_minutes>({.name = "save_minutes",
                                                 .section = "output",
                                                 .type = KeyType::number,
                                                 .help = "A checkpoint also after this many minutes; 0: not by time.",
                                                 .changes_results = kNoResult,
                                                 .resume = Resume::free,
                                                 .range = at_least(0)}));
  t.push_back(with_field<&Recipe::save_total_limit>({.name = "save_total_limit",
                                                     .section = "output",
                                                     .type = KeyType::integer,
                                                     .help = "Checkpoints that are kept.",
                                                     .changes_results = kNoResult,
                                                     .resume = Resume::free,
                                                     .range = at_least(1)}));
  t.push_back({.name = "load_best_model_at_end",
               .section = "output",
               .type = KeyType::boolean,
               .help = "End with the adapter of the best evaluation.",
               .since = Since::rel,
               .resume = Resume::free,
               .later_default = "false"});
  t.push_back(with_field<&Recipe::resume_from_checkpoint>(
      {.name = "resume_from_checkpoint",
       .section = "output",
       .type = KeyType::path,
       .help = "auto: go on with an unfinished run of the same recipe in output_dir; false: start anew; or a "
               "checkpoint folder.",
       .changes_results = kNoResult,
       .resume = Resume::ignored,
       .words = {"auto", "false"},
       .aliases = {{"auto_resume_from_checkpoints", AliasKind::mapped, {{"true", "auto"}, {"false", "false"}}}},
       .synonyms = {{"true", "auto"}}}));
  t.push_back({.name = "max_minutes",
               .section = "output",
               .type = KeyType::opaque,
               .help = "Stop after this time, save, and exit with 75.",
               .since = Since::rel,
               .changes_results = kNoResult,
               .resume = Resume::free,
               .later_default = "none"});
  t.push_back(with_field<&Recipe::logging_steps>({.name = "logging_steps",
                                                  .section = "output",
                                                  .type = KeyType::integer,
                                                  .help = "Steps between lines of the log.",
                                                  .changes_results = kNoResult,
                                                  .resume = Resume::free,
                                                  .range = at_least(1),
                                                  .aliases = {{"log_every_n_steps"}}}));
  t.push_back(with_field<&Recipe::report_to>(
      {.name = "report_to",
       .section = "output",
       .type = KeyType::list,
       .help = "Where metrics go: jsonl (metrics.jsonl in output_dir), or an empty list.",
       .changes_results = kNoResult,
       .resume = Resume::free,
       .values = {{"jsonl"}, {"tensorboard", Since::models}, {"html", Since::models}}}));
}

void add_export(KeyList& t) {
  t.push_back({.name = "export_formats",
               .section = "export",
               .type = KeyType::list,
               .help = "What is written at the end.",
               .since = Since::models,
               .changes_results = kNoResult,
               .resume = Resume::free,
               .later_default = "[adapter]"});
  t.push_back({.name = "merge_dtype",
               .section = "export",
               .type = KeyType::text,
               .help = "Type of merged weights.",
               .since = Since::models,
               .changes_results = kNoResult,
               .resume = Resume::free,
               .later_default = "bf16"});
}

}  // namespace

void add_training_keys(KeyList& t) {
  add_training(t);
  add_eval(t);
  add_output(t);
  add_export(t);
}

}  // namespace bantam
