// SPDX-License-Identifier: Apache-2.0
// Rows of chat per second and core, rendered and masked, with and without encoding:
//   bantam_mask_bench TEMPLATE.jinja [MODEL]
// MODEL: a folder or .gguf file with a tokenizer; without it only texts and spans are made.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>

#include "finetune/data/chat/chat_encoder.h"
#include "kernels/error.h"

using namespace bantam;

namespace {

Conversation chat(int row, int kind) {
  const std::string number = std::to_string(row);
  const auto message = [](const char* role, std::string content) {
    return JinjaValue::dict({{"role", role}, {"content", std::move(content)}});
  };
  JinjaValue::List messages{
      message("user", "What is the capital of France, and how many people live there? " + number)};
  std::string answer = "Paris. About two million people live in the city itself; row " + number + ".";
  if (kind == 1) answer = "<think>\nThe user asks about France.\n</think>\n\n" + answer;
  messages.push_back(message("assistant", answer));
  messages.push_back(message("user", "And in the whole region?"));
  messages.push_back(message("assistant", "About twelve million people live in the region."));
  Conversation out;
  if (kind == 2) {
    const auto call = JinjaValue::dict(
        {{"id", "abcdefghi"},
         {"type", "function"},
         {"function", JinjaValue::dict({{"name", "look_up"}, {"arguments", JinjaValue::dict({{"city", "Paris"}})}})}});
    messages[1] = JinjaValue::dict({{"role", "assistant"}, {"content", ""}, {"tool_calls", JinjaValue::list({call})}});
    messages[2] = JinjaValue::dict({{"role", "tool"}, {"content", "two million"}, {"tool_call_id", "abcdefghi"}});
  }
  for (const JinjaValue& m : messages) out.turns.push_back({m.find("role")->text(), {}, {}});
  out.messages = JinjaValue::list(std::move(messages));
  return out;
}

void measure(const char* what, const std::function<size_t(const Conversation&)>& work, int kind) {
  std::vector<Conversation> rows;
  for (int i = 0; i < 500; ++i) rows.push_back(chat(i, kind));
  double best = 0;
  size_t made = 0;
  for (int round = 0; round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    int count = 0;
    double seconds = 0;
    for (; seconds < 0.3; seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()) {
      for (const Conversation& row : rows) made += work(row);
      count += static_cast<int>(rows.size());
    }
    best = std::max(best, count / seconds);
  }
  std::printf("%-42s %9.0f rows/s%s\n", what, best, made == 0 ? " (nothing made)" : "");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) return std::fputs("usage: bantam_mask_bench TEMPLATE.jinja [MODEL]\n", stderr), 2;
  std::ifstream in(argv[1]);
  const std::string source{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto parsed = std::make_shared<ChatTemplate>(ChatTemplate::from_text(source, argv[1], argc > 2 ? argv[2] : ""));
  const AnswerSpans spans(parsed, {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>"}, "<|im_end|>");
  static constexpr const char* kKinds[] = {"four short messages", "with reasoning in an earlier answer",
                                           "with a tool call and its result"};
  for (int kind = 0; kind < 3; ++kind) {
    try {
      measure(
          kKinds[kind], [&](const Conversation& row) { return spans.render(row).trained.size(); }, kind);
    } catch (const Error& e) {
      std::printf("%-42s refused: %s\n", kKinds[kind], e.what());
    }
  }
  if (argc > 2) {
    const ChatEncoder encoder(load_tokenizer(argv[2]), parsed);
    measure(
        "four short messages, to ids", [&](const Conversation& row) { return encoder.encode(row).ids.size(); }, 0);
  }
  return 0;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
