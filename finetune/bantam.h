// SPDX-License-Identifier: Apache-2.0
// The public interface in one header; installed as <bantam/bantam.h>. In the order of use:
//   load_model, load_tokenizer, load_chat_template,
//   read_datasets                                  what to train on what
//   AdapterSet, Context, TrainOptions              what is trained, where, how
//   train                                          a whole run; hooks report and may stop it
//   Trainer                                        the same a step at a time: train_step, evaluate
//   Generator                                      text and logits
//   save_adapter, load_adapter                     PEFT folders
// Every failure is a bantam::Error. The library never prints, exits, installs signal handlers or changes global state.
#pragma once
#include "../kernels/context.h"
#include "../kernels/device_choice.h"
#include "../kernels/error.h"
#include "../lora/adapter_set.h"
#include "../lora/peft_files.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "train/generator.h"
#include "train/run.h"
#include "train/self_check.h"
#include "train/trainer.h"
