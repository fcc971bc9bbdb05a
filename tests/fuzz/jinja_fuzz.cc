// SPDX-License-Identifier: Apache-2.0
// Any bytes as a template: parsed and rendered within small limits, the only way out is an Error. For libFuzzer:
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I. tests/fuzz/jinja_fuzz.cc finetune/text/jinja/*.cc
//     -lutf8proc -o jinja_fuzz && ./jinja_fuzz -max_len=4096 -dict=tests/fuzz/jinja.dict corpus/
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "finetune/text/jinja/jinja.h"
#include "kernels/error.h"

using namespace bantam;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const JinjaValue context = JinjaValue::from_json(nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Zürich 😀 'q'"},
                 {"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": {"x": 1.5}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}],
    "name": "World", "list": [3, 1, 2], "nested": {"a": {"b": [1]}}, "n": 7, "pi": 3.25, "yes": true, "nothing": null,
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true})"));
  const JinjaOptions options{
      .max_output_bytes = 1 << 16, .max_loop_iterations = 2000, .max_steps = 200000, .max_depth = 200, .clock = [] {
        return std::tm{.tm_mday = 1, .tm_year = 100};
      }};
  try {
    const auto parsed = JinjaTemplate::parse(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    const Rendered out = parsed.render(context, options);
    size_t end = 0;
    for (const auto& span : out.generation) {
      if (span.begin < end || span.end < span.begin || span.end > out.text.size()) throw std::logic_error("spans");
      end = span.end;
    }
    if (out.text.size() > options.max_output_bytes) throw std::logic_error("output beyond the limit");
  } catch (const Error& e) {
    if (e.code() != ErrorCode::model && e.code() != ErrorCode::data) throw;
    if (!std::string(e.what()).starts_with("fuzz:")) throw;
  }
  return 0;
}
