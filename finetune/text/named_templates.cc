// SPDX-License-Identifier: Apache-2.0
#include "named_templates.h"

#include <algorithm>
#include <utility>

#include "../../kernels/error.h"
#include "edit_distance.h"
#include "utf8.h"

namespace bantam {
namespace {

// What a format cannot say is an error, not left out.
constexpr std::string_view kPlainTurns =
    R"({%- if tools %}{{- raise_exception('this template has no place for tools: take chatml, or the template of the model') }}{%- endif %}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('this template has no role ' + message.role + ', only system, user and assistant') }}
    {%- endif %}
    {%- if message.tool_calls or message.reasoning_content or message.reasoning or message.thinking %}
        {{- raise_exception('this template has no place for tool calls and reasoning: take chatml, or the template of the model') }}
    {%- endif %}
{%- endfor %}
)";
constexpr std::string_view kSystemFirst = R"({%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set system = none %}
    {%- set turns = messages %}
{%- endif %}
{%- for message in turns %}
    {%- if message.role == 'system' %}{{- raise_exception('a system turn can only be the first') }}{%- endif %}
{%- endfor %}
)";
constexpr std::string_view kAlternating = R"({%- for message in turns %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('user and assistant have to take turns, the user first') }}
    {%- endif %}
{%- endfor %}
)";

// Tool calls and results in the tags of Hermes, which servers know how to read.
constexpr std::string_view kChatml = R"({%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- 'These functions may be called; their signatures are between <tools> and </tools>:\n<tools>\n' }}
    {%- for tool in tools %}{{- tool | tojson + '\n' }}{%- endfor %}
    {{- '</tools>\nA call is a JSON object with name and arguments between <tool_call> and </tool_call>:\n<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- generation %}
            {%- set reasoning = message.reasoning_content or message.reasoning or message.thinking %}
            {%- if reasoning %}{{- '<think>\n' + reasoning + '\n</think>\n\n' }}{%- endif %}
            {{- message.content or '' }}
            {%- for call in message.tool_calls or [] %}
                {%- if message.content or not loop.first %}{{- '\n' }}{%- endif %}
                {{- '<tool_call>\n{"name": ' + call.function.name | tojson + ', "arguments": ' + call.function.arguments | tojson + '}\n</tool_call>' }}
            {%- endfor %}
            {{- '<|im_end|>\n' }}
        {%- endgeneration %}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>tool\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
    {%- elif not (tools and loop.first and message.role == 'system') %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
)";

constexpr std::string_view kLlama3 = R"({%- for message in messages %}
    {%- if loop.first %}{{- bos_token }}{%- endif %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{- message.content | trim + '<|eot_id|>' }}{%- endgeneration %}
    {%- else %}
        {{- message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}
)";

constexpr std::string_view kLlama2 = R"({%- for message in turns %}
    {%- if message.role == 'user' %}
        {%- set opening = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' if loop.first and system is not none else '' %}
        {{- bos_token }}
        {{- '[INST] ' + (opening + message.content) | trim + ' [/INST]' }}
    {%- else %}
        {%- generation %}{{- ' ' + message.content | trim + ' ' + eos_token }}{%- endgeneration %}
    {%- endif %}
{%- endfor %}
)";

// Of Mistral 7B Instruct v0.3: the system text stands in the last turn of the user.
constexpr std::string_view kMistral = R"({{- bos_token }}
{%- set last = namespace(user=0) %}
{%- for message in turns %}
    {%- if message.role == 'user' %}{%- set last.user = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for message in turns %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' }}
        {%- if system and loop.index0 == last.user %}{{- system + '\n\n' }}{%- endif %}
        {{- message.content + '[/INST]' }}
    {%- else %}
        {%- generation %}{{- ' ' + message.content + eos_token }}{%- endgeneration %}
    {%- endif %}
{%- endfor %}
)";

constexpr std::string_view kGemmaTurn = R"(    {%- if message.role == 'user' %}
        {{- '<start_of_turn>user\n' + (opening if loop.first else '') + message.content | trim + '<end_of_turn>\n' }}
    {%- else %}
        {{- '<start_of_turn>model\n' }}
        {%- generation %}{{- message.content | trim + '<end_of_turn>\n' }}{%- endgeneration %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %}
)";

// Gemma 1 and 2 have no system turn; Gemma 3 puts it before the user's first words.
constexpr std::string_view kGemma =
    R"({%- if system is not none %}{{- raise_exception('this template has no system turn: take gemma3, or put its text into the first user turn') }}{%- endif %}
{{- bos_token }}
{%- set opening = '' %}
{%- for message in turns %}
)";

constexpr std::string_view kGemma3 = R"({{- bos_token }}
{%- set opening = '' if system is none else system + '\n\n' %}
{%- for message in turns %}
)";

constexpr std::string_view kPhi3 = R"({%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|assistant|>\n' }}
        {%- generation %}
            {{- message.content + '<|end|>\n' }}
            {%- if loop.last and not add_generation_prompt %}{{- eos_token }}{%- endif %}
        {%- endgeneration %}
    {%- elif message.role == 'user' or message.content %}
        {{- '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}
{%- elif not messages or messages[-1].role != 'assistant' %}{{- eos_token }}{%- endif %}
)";

constexpr std::string_view kZephyr = R"({%- for message in messages %}
    {{- '<|' + message.role + '|>\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{- message.content + eos_token + '\n' }}{%- endgeneration %}
    {%- else %}
        {{- message.content + eos_token + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}{%- endif %}
)";

// Rows of type alpaca have instruction and input beside the content of the user's turn.
constexpr std::string_view kAlpaca = R"({{- bos_token }}
{%- set given = namespace(input=false) %}
{%- for message in turns %}
    {%- if message.instruction and message.input %}{%- set given.input = true %}{%- endif %}
{%- endfor %}
{%- if system is not none %}
    {{- system + '\n\n' }}
{%- elif given.input %}
    {{- 'Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.\n\n' }}
{%- else %}
    {{- 'Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n' }}
{%- endif %}
{%- for message in turns %}
    {%- if message.role == 'assistant' %}
        {{- '### Response:\n' }}
        {%- generation %}{{- message.content + eos_token }}{%- endgeneration %}
    {%- elif message.instruction and message.input %}
        {{- '### Instruction:\n' + message.instruction + '\n\n### Input:\n' + message.input }}
    {%- else %}
        {{- '### Instruction:\n' + message.content }}
    {%- endif %}
    {%- if not loop.last or add_generation_prompt %}{{- '\n\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '### Response:\n' }}{%- endif %}
)";

// Of Vicuna 1.1 and 1.5.
constexpr std::string_view kVicuna = R"({{- bos_token }}
{%- if system is none %}
    {%- set system = "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions." %}
{%- endif %}
{{- system + ' ' }}
{%- for message in turns %}
    {%- if message.role == 'assistant' %}
        {{- 'ASSISTANT:' }}
        {%- generation %}{{- ' ' + message.content + eos_token }}{%- endgeneration %}
    {%- else %}
        {{- 'USER: ' + message.content + ' ' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- 'ASSISTANT:' }}{%- endif %}
)";

std::vector<NamedTemplate> make_templates() {
  const auto make = [](const char* name, bool writes_eos, std::initializer_list<std::string_view> pieces) {
    NamedTemplate out{name, {}, writes_eos};
    for (const std::string_view piece : pieces) out.source += piece;
    return out;
  };
  return {
      make("chatml", false, {kChatml}),
      make("llama3", false, {kPlainTurns, kLlama3}),
      make("llama2", true, {kPlainTurns, kSystemFirst, kAlternating, kLlama2}),
      make("mistral", true, {kPlainTurns, kSystemFirst, kAlternating, kMistral}),
      make("gemma", false, {kPlainTurns, kSystemFirst, kAlternating, kGemma, kGemmaTurn}),
      make("gemma3", false, {kPlainTurns, kSystemFirst, kAlternating, kGemma3, kGemmaTurn}),
      make("phi3", false, {kPlainTurns, kPhi3}),
      make("zephyr", true, {kPlainTurns, kZephyr}),
      make("alpaca", true, {kPlainTurns, kSystemFirst, kAlpaca}),
      make("vicuna", true, {kPlainTurns, kSystemFirst, kVicuna}),
  };
}

// "Llama-3" and llama3 are the same word to people.
std::string folded(std::string_view s) {
  std::string out;
  for (const char c : s)
    if (c != '-' && c != '_' && c != '.' && c != ' ')
      out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

}  // namespace

const std::vector<NamedTemplate>& named_templates() {
  static const std::vector<NamedTemplate> templates = make_templates();
  return templates;
}

const NamedTemplate& named_template(std::string_view name) {
  std::string names;
  const std::string wanted = folded(name.substr(0, 64));
  std::string_view near;
  size_t least = 3;  // more edits are another word
  for (const auto& t : named_templates()) {
    if (t.name == name) return t;
    names += (names.empty() ? "" : ", ") + t.name;
    const std::string known = folded(t.name);
    const size_t distance = known.starts_with(wanted) || wanted.starts_with(known) ? 1 : edit_distance(wanted, known);
    if (wanted.size() > 2 && distance < least) near = t.name, least = distance;
  }
  throw Error(ErrorCode::usage,
              str("chat_template '", printable(name, 60), "': no such template",
                  near.empty() ? std::string() : str(", did you mean ", near, "?")),
              str("known are tokenizer_default (the model's own), ", names, ", and the path of a .jinja file"));
}

}  // namespace bantam
