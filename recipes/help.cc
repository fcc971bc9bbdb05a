// SPDX-License-Identifier: Apache-2.0
#include "help.h"

#include <algorithm>

#include "../kernels/error.h"
#include "dataset_keys.h"
#include "key_table.h"

namespace bantam {
namespace {

constexpr size_t kIndent = 8, kWidth = 100;

/// Paragraph of words, indented.
std::string wrapped(const std::string& text) {
  std::string out, line(kIndent, ' ');
  size_t start = 0;
  bool first = true;
  while (start < text.size()) {
    const size_t space = std::min(text.find(' ', start), text.size());
    if (!first && line.size() + 1 + space - start > kWidth) {
      out += line + "\n";
      line = std::string(kIndent, ' ');
      first = true;
    }
    line += (first ? "" : " ") + text.substr(start, space - start);
    first = false;
    start = space + 1;
  }
  return out + line + "\n";
}

std::string argument_of(const KeySpec& key) {
  switch (key.type) {
    case KeyType::boolean:
      return "[=true|false]";
    case KeyType::integer:
      return key.word.empty() ? " N" : " N|" + key.word;
    case KeyType::number:
      return " X";
    case KeyType::steps:
      return key.word.empty() ? " N|FRACTION" : " N|FRACTION|" + key.word;
    case KeyType::size:
      return key.word.empty() ? " SIZE" : " SIZE|" + key.word;
    case KeyType::choice: {
      std::string out;
      for (const ChoiceValue& value : key.values) {
        if (available(value.since)) out += (out.empty() ? "" : "|") + value.name;
      }
      return key.name == "gradient_checkpointing" ? "[=" + out + "]" : " " + out;
    }
    case KeyType::path:
      return " PATH";
    case KeyType::list:
    case KeyType::targets:
      return " NAME,NAME";
    case KeyType::datasets:
      return " FILE";
    case KeyType::save:
      return " '{save: [NAME]}'";
    case KeyType::text:
    case KeyType::opaque:
      return " TEXT";
  }
  return {};
}

std::string key_flags() {
  std::string out;
  for (const std::string& section : sections()) {
    std::string body;
    for (const KeySpec& key : key_table()) {
      if (key.section != section || !key.has_field()) continue;
      body += "    " + flag_of(key.name) + argument_of(key);
      if (key.type == KeyType::boolean || key.name == "gradient_checkpointing")
        body += ", --no-" + flag_of(key.name).substr(2);
      body += "\n";
      std::string text = key.help;
      if (key.required) {
        text += " Required.";
      } else {
        text += " Default: " + default_text(key) + ".";
      }
      std::string aliases;
      for (const Alias& alias : key.aliases) {
        if (alias.kind == AliasKind::rename) aliases += (aliases.empty() ? "" : ", ") + flag_of(alias.name);
      }
      if (!aliases.empty()) text += " Also " + aliases + ".";
      body += wrapped(text);
      if (key.name != "datasets") continue;
      for (const DatasetKey& d : dataset_keys()) body += wrapped(str("  ", d.name, ": ", d.help));
    }
    if (!body.empty()) out += "\n  " + section + "\n" + body;
  }
  return out;
}

constexpr char kExitCodes[] = R"(
EXIT CODES
    0 done                      5 does not fit into memory
    1 internal error            6 device
    2 recipe, flags             7 numbers that are not finite
    3 dataset files             8 input and output: disk full, permission, lock
    4 model files              75 stopped early, can be resumed
  130 and 143: interrupted, can be resumed
)";

constexpr char kCommonOptions[] = R"(
OPTIONS
    --json      results as JSON on standard output
    --quiet     no progress and no notes
    -h, --help  this text
  Results go to standard output, progress and messages to standard error. NO_COLOR is honoured.
)";

constexpr char kProgram[] = R"(bantam - fine-tunes language models with QLoRA, with activation checkpointing built in

USAGE
    bantam COMMAND [ARGUMENTS]

COMMANDS
    init MODEL DATA        write a recipe for a model and a dataset
    validate RECIPE        check a recipe; --resolved prints it in full
    preprocess RECIPE      what becomes of the data: rows kept, cut and dropped, tokens, lengths
    plan RECIPE            how much memory and time a run takes, before it starts
    selftest RECIPE        prove on your model and data that checkpointing changes no result
    train RECIPE           fine-tune
    generate MODEL|RUN     continue a prompt, or answer a message
    inspect MODEL|RUN      the exact prompt that a chat is served with, and what ends an answer
    tokenize MODEL|RUN     ids and pieces of a text; of chat rows with what is trained
    quantize MODEL -o DIR  write a model in 4 bits
    config-schema          all recipe keys as JSON Schema
    doctor                 what this machine has, and whether each device computes right

EXAMPLES
    bantam train --base-model ./models/SmolLM2-135M --data rows.jsonl
    bantam init ./models/SmolLM2-135M rows.jsonl && bantam plan recipe.yaml && bantam train recipe.yaml
    bantam train recipe.yaml --max-seq-length 4096 --no-gradient-checkpointing
    bantam generate ./outputs/my-run --prompt "Question: Why?"

OPTIONS
    -h, --help   this text; bantam COMMAND --help explains a command
    --version    version
)";

constexpr char kTrain[] = R"(bantam train - fine-tune a model

USAGE
    bantam train RECIPE [KEY=VALUE...] [FLAGS]
    bantam train --base-model MODEL --data FILE [FLAGS]

DESCRIPTION
    Trains LoRA adapters on a frozen base model that is held in 4 bits. The run is planned first: rows, steps, memory. It is
    refused before step 1 when it does not fit. The adapter, checkpoints, metrics and the resolved recipe go to output_dir.
    An unfinished run of the same recipe goes on from its last checkpoint. Ctrl-C stops after the running micro-batch and
    saves; again stops at once.

    Every recipe key is a flag; a flag wins over the recipe, the recipe over the default. Without a recipe output_dir is
    ./outputs/MODEL-DATA. If memory is short: gradient checkpointing first, then a smaller --loss-chunk-bytes, then a smaller
    --micro-batch-size with more --gradient-accumulation-steps, and only then a shorter --max-seq-length.

EXAMPLES
    bantam train recipe.yaml
    bantam train recipe.yaml --max-seq-length 4096 --gradient-checkpointing=selective
    bantam train recipe.yaml learning_rate=1e-4 training.num_epochs=2
    bantam train --base-model ./models/SmolLM2-135M --data rows.jsonl --output-dir ./outputs/mine

FLAGS
    --debug N
        Show the first N rows as the model will see them, context and trained text apart.
    --resume
        Go on although num_epochs, learning_rate or the like differ from the run in output_dir.
    --overwrite
        Start anew in a folder that holds a run.
    --set KEY=VALUE
        A key by its recipe name; may be repeated, as may --data.
)";

constexpr char kPlan[] = R"(bantam plan - how much memory and time a run takes

USAGE
    bantam plan RECIPE [KEY=VALUE...] [FLAGS]
    bantam plan --base-model MODEL --data FILE [FLAGS]
    bantam plan --config config.json [FLAGS]

DESCRIPTION
    Reads the model's shape and the data, no weights, and prints rows, packs and steps, and the peak of memory line by line:
    weights, adapters, gradients, optimiser state, saved activations, recompute, loss chunk, workspace; whether it fits, and
    how long a step and an epoch take. Then every checkpointing strategy with its bytes and time, the largest micro-batch and
    length that fit with and without checkpointing, and where it does not fit, the smallest changes that make it.
    All flags of bantam train are taken. The machine's speed is measured once per model shape and kept in the cache.
    Exit code 5 when it does not fit.

EXAMPLES
    bantam plan recipe.yaml
    bantam plan recipe.yaml --max-seq-length 8192 --json
    bantam plan recipe.yaml --svg plan.svg
    bantam plan --config Llama-3-70B/config.json --max-seq-length 8192 --device cuda --assume-memory 80GiB --assume-rate 600T

FLAGS
    --config FILE
        A config.json: plan for a model that is not here. Data are not read; micro-batches are as large as they may be.
    --assume-memory SIZE
        Memory of the machine to plan for, weights included. Default: what is free here.
    --assume-rate RATE
        FLOP/s of the machine to plan for, such as 400G or 90T. Default: measured here. With both, --device cuda plans for a
        GPU that need not be here. Copies to host memory are taken to run at a 12,000th of it, in bytes per second.
    --svg FILE
        Draw memory over the step, and what is kept of each layer.
)";

constexpr char kSelftest[] = R"(bantam selftest - prove that checkpointing changes no result

USAGE
    bantam selftest RECIPE [KEY=VALUE...] [FLAGS]

DESCRIPTION
    Runs a few steps of your model on your data without checkpointing, with it, and with schedules solved for 75, 50 and 25 %
    of the memory between the two, and says whether losses, gradients and adapters are equal to the bit; with the planned and
    the measured bytes and time of each. Nothing is written. Exit code 9 when they are not equal.

EXAMPLES
    bantam selftest recipe.yaml
    bantam selftest recipe.yaml --steps 10 --json

FLAGS
    --steps N
        Optimiser steps of each run. Default: 3.
)";

constexpr char kQuantize[] = R"(bantam quantize - write a model in 4 bits

USAGE
    bantam quantize MODEL -o DIR [FLAGS]

DESCRIPTION
    Reads a folder with safetensors files or a .gguf file and writes a folder in NF4 in the layout of bitsandbytes. On a GPU
    slabs of rows go up and codes and scales come back, with some MiB of its memory; the files are the same as the CPU's.

EXAMPLES
    bantam quantize ./models/SmolLM2-135M -o ./models/SmolLM2-135M-nf4

FLAGS
    -o, --output DIR
        Where to write. Required.
    --double-quant[=true|false], --no-double-quant
        Quantise the block scales too. Default: true.
    --device D
        What quantises: auto, cpu, cuda or cuda:N. Default: auto.
    --num-threads N|auto
        CPU threads. Default: auto.
    --overwrite
        Replace DIR where it exists.
)";

constexpr char kGenerate[] = R"(bantam generate - continue a prompt

USAGE
    bantam generate MODEL|RUN --prompt TEXT [FLAGS]

DESCRIPTION
    MODEL is a folder with safetensors files or a .gguf file; RUN is the output_dir of a training run, which knows its base
    model, adapter and chat template. The text goes to standard output. The prompt of a run that was trained on chat rows is
    a message of a user, written with that template; --chat does the same for a model.

EXAMPLES
    bantam generate ./outputs/my-run --prompt "Question: Why?"
    bantam generate ./models/SmolLM2-135M-Instruct --chat --system "Be brief." --prompt "Why is the sky blue?"
    bantam generate ./models/SmolLM2-135M --adapter ./outputs/my-run --prompt - < prompt.txt

FLAGS
    --prompt TEXT          the prompt; - reads it from standard input
    --adapter PATH         an adapter folder to use with MODEL
    --max-new-tokens N     most tokens to add. Default: 128.
    --temperature X        0 always takes the likeliest token. Default: 0.
    --top-p X              sample from the likeliest tokens that make up this share. Default: 1.
    --seed N               of the sampling. Default: 42.
    --chat                 the prompt is a message, written with the model's chat template
    --system TEXT          a system message before it
    --raw                  take the prompt as it is: no template, none of the tokenizer's special tokens
    --dtype auto|bf16|f32  of activations. Default: auto.
    --quant-type nf4|none  how the weights are held. Default: as the run was trained, or nf4.
    --device D             auto, cpu, cuda or cuda:N. Default: auto.
    --num-threads N|auto   CPU threads. Default: auto.
)";

constexpr char kPreprocess[] = R"(bantam preprocess - what becomes of the data

USAGE
    bantam preprocess RECIPE [KEY=VALUE...] [FLAGS]
    bantam preprocess --base-model MODEL --data FILE [FLAGS]

DESCRIPTION
    Reads and tokenises the data as training will and prints the data report: rows read, kept, cut and dropped, with first
    lines and reasons; tokens, trained tokens, tokens lost to max_seq_length; how long rows are; what packing saves. All of
    it, with every line, goes to data_report.json in output_dir. The tokens are kept in the cache, so that training starts
    at once. All flags of bantam train are taken.

EXAMPLES
    bantam preprocess recipe.yaml
    bantam preprocess recipe.yaml --debug 3
    bantam preprocess recipe.yaml --max-seq-length 1024 --json

FLAGS
    --debug N
        Show the first N rows as the model will see them, context and trained text apart.
)";

constexpr char kTokenize[] = R"(bantam tokenize - ids and pieces of a text

USAGE
    bantam tokenize MODEL|RUN [--text TEXT | --file FILE] [FLAGS]
    bantam tokenize MODEL|RUN --chat [--text MESSAGE | --file ROWS] [FLAGS]

DESCRIPTION
    Prints a line per token: place, id, piece, and what it stands for where that looks different. Without --text and --file
    the text is read from standard input. With --chat a file holds rows of a dataset, which go through the chat template and
    are shown with their loss mask: + marks trained tokens; a text is a row of JSON, or what a user says.

EXAMPLES
    bantam tokenize ./models/SmolLM2-135M --text "Hello, world"
    bantam tokenize ./models/SmolLM2-135M-Instruct --chat --file rows.jsonl --rows 2
    bantam tokenize ./outputs/my-run --chat --text "Why?" --json

FLAGS
    --text TEXT           the text; with --chat a message, or a row as JSON
    --file FILE           a file with it; with --chat rows of a dataset
    --chat                through the chat template
    --chat-template NAME  another one than the model's or the run's: a name or a .jinja file
    --rows N              most rows of a file that are shown. Default: 5.
    --no-special          without the special tokens that the tokenizer adds
    --parse-special       control tokens written in the text become control tokens. They are plain text otherwise.
)";

constexpr char kInspect[] = R"(bantam inspect - the exact prompt that a chat is served with

USAGE
    bantam inspect MODEL|RUN [--prompt [MESSAGE]] [FLAGS]

DESCRIPTION
    Prints model, adapter, chat template, the tokens that end an answer, and the prompt of a conversation: what a server that
    uses the same template (llama.cpp, vLLM) sends to the model.

EXAMPLES
    bantam inspect ./outputs/my-run
    bantam inspect ./outputs/my-run --prompt "Why?" > prompt.txt

FLAGS
    --prompt [MESSAGE]    print nothing but the prompt. Default of MESSAGE: Hello!
    --system TEXT         a system message before it
    --chat-template NAME  another one than the model's or the run's: a name or a .jinja file
)";

constexpr char kDoctor[] = R"(bantam doctor - what this machine has, and whether each device computes right

USAGE
    bantam doctor

DESCRIPTION
    Lists processor, memory, cache, libraries and GPUs with driver and toolkit versions and what attention runs through
    (cuDNN, or built in), says what device: auto would take, and runs a training step on each device against the CPU's
    scalar code. The CUDA backend is looked for beside the program; BANTAM_CUDA_LIBRARY names another file. A backend that
    was built with cuDNN does without under BANTAM_CUDNN=0. Exit code 6 when a device computes something else than the
    reference.

EXAMPLES
    bantam doctor
    bantam doctor --json
)";

constexpr char kValidate[] = R"(bantam validate - check a recipe

USAGE
    bantam validate RECIPE [KEY=VALUE...] [FLAGS]

DESCRIPTION
    Reports every error of a recipe with its line, and checks that the model and the datasets exist. All flags of bantam
    train are taken.

EXAMPLES
    bantam validate recipe.yaml
    bantam validate recipe.yaml --resolved > full.yaml

FLAGS
    --resolved   print the recipe with every key and its value
    --no-files   do not look at the model and the datasets
)";

constexpr char kSchema[] = R"(bantam config-schema - all recipe keys as JSON Schema

USAGE
    bantam config-schema

EXAMPLES
    bantam config-schema > bantam.schema.json
)";

constexpr char kInit[] = R"(bantam init - write a recipe for a model and a dataset

USAGE
    bantam init MODEL DATA [--output FILE] [--overwrite]

DESCRIPTION
    Looks at the first row of DATA for its shape and writes a commented recipe with the keys that people change.

EXAMPLES
    bantam init ./models/SmolLM2-135M rows.jsonl
    bantam init ./models/SmolLM2-135M rows.jsonl --output - | less

FLAGS
    --output FILE   where to write; - is standard output. Default: recipe.yaml.
    --overwrite     replace FILE where it exists
)";

}  // namespace

std::string flag_of(const std::string& key) {
  std::string flag = "--" + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string help_text(const std::string& command) {
  const std::string ending = std::string(kCommonOptions) + kExitCodes;
  if (command == "train") return kTrain + key_flags() + ending;
  if (command == "plan") return kPlan + ending;
  if (command == "selftest") return kSelftest + ending;
  if (command == "quantize") return kQuantize + ending;
  if (command == "generate") return kGenerate + ending;
  if (command == "preprocess") return kPreprocess + ending;
  if (command == "tokenize") return kTokenize + ending;
  if (command == "inspect") return kInspect + ending;
  if (command == "validate") return kValidate + ending;
  if (command == "config-schema") return kSchema + ending;
  if (command == "init") return kInit + ending;
  if (command == "doctor") return kDoctor + ending;
  return std::string(kProgram) + kExitCodes;
}

}  // namespace bantam
