// SPDX-License-Identifier: Apache-2.0
// Trained spans of random conversations and of damaged templates: one method held against the other.
#include <doctest/doctest.h>

#include "chat_testing.h"
#include "finetune/data/chat/regular_form.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::ordered_json;

TEST_CASE("answer spans: places by comparison with the plain form are those that the renderings give") {
  const std::vector<std::vector<std::pair<std::string, std::string>>> chats = {
      kTwo,
      {{"user", " a\n"}, {"assistant", "\nb "}},
      {{"system", "s"}, {"user", "<|s|>"}, {"assistant", "</s>"}, {"user", ""}, {"assistant", ""}},
      {{"user", "Hi"}, {"assistant", "Hi<|e|>\n<|s|>user\nHi"}, {"user", "Hi"}, {"assistant", "Hi"}},
      {{"user", "q"}, {"assistant", "<think>\nwhy\n</think>\n\nso"}, {"user", "q"}, {"assistant", "\t"}},
      {{"system", ""},
       {"user", "1"},
       {"assistant", "2"},
       {"user", "3"},
       {"assistant", "4"},
       {"user", "5"},
       {"assistant", "6"}}};
  const auto check = [&](const std::string& source, const std::string& name, const std::vector<std::string>& control,
                         const std::string& eos, size_t& compared) {
    CAPTURE(name);
    std::shared_ptr<const ChatTemplate> parsed;
    try {
      parsed = template_of(source, eos, "<s>");
    } catch (const Error&) {
      return;
    }
    const AnswerSpans spans(parsed, control, eos);
    for (const auto& messages : chats) {
      Conversation c = chat(messages);
      std::string fast, slow;
      const auto run = [&] {
        try {
          return shown(spans.render(c));
        } catch (const Error& e) {
          return std::string(e.what());
        }
      };
      fast = run();
      c.variables.emplace_back("not_used_by_any_template", 1);  // the plain form is for rows without variables
      slow = run();
      CHECK(fast == slow);
      ++compared;
    }
  };
  size_t compared = 0;
  const auto golden =
      ordered_json::parse(read_file(std::filesystem::path(BANTAM_TESTS_DIR) / "golden" / "chat_mask_golden.json"));
  std::vector<std::string> control;
  for (const auto& t : golden.at("added_tokens")) control.push_back(t.at("content"));
  control.insert(control.end(), {"<|im_start|>", "<|im_end|>"});
  for (const auto& [name, source] : golden.at("templates").items())
    check(source.at("own"), name, control, "</s>", compared);
  CHECK(compared == 8 * chats.size());
  const auto folder = std::filesystem::path(BANTAM_SHARED_DATA) / "chat_templates";
  if (!std::filesystem::exists(folder)) {
    MESSAGE("skipped, not here: " << folder.string());
    return;
  }
  control.insert(control.end(),
                 {"<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<end_of_turn>", "<start_of_turn>",
                  "<\xef\xbd\x9c"
                  "Assistant\xef\xbd\x9c>",
                  "<|return|>", "<|begin_of_text|>", "[SYSTEM_PROMPT]"});
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() == ".jinja") {
      check(read_file(file.path()), file.path().filename().string(), control, "<|im_end|>", compared);
    }
  }
  MESSAGE(compared << " renderings compared");
}

TEST_CASE("answer spans: found spans are the tagged ones, for conversations of any texts and roles") {
  const auto golden =
      ordered_json::parse(read_file(std::filesystem::path(BANTAM_TESTS_DIR) / "golden" / "chat_mask_golden.json"));
  std::vector<std::string> control;
  for (const auto& t : golden.at("added_tokens")) control.push_back(t.at("content"));
  control.insert(control.end(), {"<|im_start|>", "<|im_end|>"});
  RandomText random(11);
  const std::vector<std::string> pieces = {"Hi",
                                           " ",
                                           "\n",
                                           "assistant",
                                           "user",
                                           "<think>",
                                           "</think>",
                                           "<|im_end|>",
                                           "</s>",
                                           "[INST]",
                                           "### Response:\n",
                                           "<|im_start|>assistant\n",
                                           "ok",
                                           "x",
                                           "\t",
                                           "Hello.",
                                           "\n\n",
                                           "\u65e5",
                                           "{\"a\": 1}",
                                           "<"};
  const auto text = [&] {
    std::string out;
    for (uint32_t n = random.next() % 5; n > 0; --n) out += pieces[random.next() % pieces.size()];
    return out;
  };
  size_t compared = 0, found = 0;
  for (const auto& [name, source] : golden.at("templates").items()) {
    const AnswerSpans tagged(template_of(source.at("tagged"), "</s>", "<s>"), control, "</s>");
    const AnswerSpans own(template_of(source.at("own"), "</s>", "<s>"), control, "</s>");
    const bool writes_calls = contains(source.at("own"), "m.tool_calls");
    for (int i = 0; i < 150; ++i) {
      auto messages = ordered_json::array();
      if (random.next() % 4 == 0) messages.push_back({{"role", "system"}, {"content", text()}});
      for (uint32_t n = 1 + random.next() % 6; n > 0; --n) {
        const uint32_t kind = random.next() % 8;
        if (kind < 4) messages.push_back({{"role", "user"}, {"content", text()}});
        if (kind == 5 && writes_calls) {
          const ordered_json call = {{"type", "function"},
                                     {"function", {{"name", "f"}, {"arguments", {{"a", text()}, {"b", 2}}}}}};
          messages.push_back(
              {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", ordered_json::array({call})}});
          messages.push_back({{"role", "tool"}, {"content", text()}});
          messages.push_back({{"role", "assistant"}, {"content", text()}});
        } else {
          messages.push_back({{"role", "assistant"}, {"content", text()}});
        }
      }
      const Conversation c =
          conversation_of(messages, random.next() % 4 == 0 ? ordered_json::parse(R"([{"name": "f"}])") : nullptr);
      const auto run = [&](const AnswerSpans& spans) {
        try {
          auto out = spans.render(c);
          out.trained.erase(std::remove_if(out.trained.begin(), out.trained.end(),
                                           [](const auto& s) { return s.bytes.begin == s.bytes.end; }),
                            out.trained.end());
          return shown(out);
        } catch (const Error& e) {
          return std::string("refused: ") + e.what();
        }
      };
      const std::string want = run(tagged), got = run(own);
      if (want.starts_with("refused") && got.starts_with("refused")) continue;
      CAPTURE(name);
      CAPTURE(messages.dump());
      ++compared;
      // Never another mask; refused only where a message without text stands in a place that the template rewrites.
      const bool blank = std::any_of(messages.begin(), messages.end(), [](const ordered_json& m) {
        const auto& content = m.at("content");
        return content.is_string() && content.get<std::string>().find_first_not_of(" \n\t") == std::string::npos;
      });
      if (blank && contains(got, "could not be found")) continue;
      CHECK(got == want);
      found += got == want;
    }
  }
  CHECK(compared > 900);
  CHECK(found > compared * 9 / 10);
  MESSAGE(found << " of " << compared << " the same");
}

TEST_CASE("answer spans: broken templates end in spans that are in order or in an error") {
  const auto golden =
      ordered_json::parse(read_file(std::filesystem::path(BANTAM_TESTS_DIR) / "golden" / "chat_mask_golden.json"));
  std::vector<std::string> sources;
  for (const auto& [name, source] : golden.at("templates").items()) {
    sources.push_back(source.at("own"));
    sources.push_back(source.at("tagged"));
  }
  const auto conversation = conversation_of(
      ordered_json::parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "Hi </s>"},
      {"role": "assistant", "content": "<think>\nx\n</think>\n\nyes"}, {"role": "user", "content": "go"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": "b"}}}]},
      {"role": "tool", "content": "r"}, {"role": "assistant", "content": "done"}])"));
  RandomText random(23);
  size_t rendered = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string source = sources[random.next() % sources.size()];
    for (uint32_t n = 1 + random.next() % 3; n > 0; --n) {
      const size_t at = random.next() % source.size(), length = 1 + random.next() % 12;
      switch (random.next() % 3) {
        case 0:
          source.erase(at, length);
          break;
        case 1:
          source.insert(at, source.substr(random.next() % source.size(), length));
          break;
        default:
          source.replace(at, length, source.substr(random.next() % source.size(), length));
      }
    }
    try {
      const AnsweredText text = AnswerSpans(template_of(source, "</s>", "<s>"), kControl, "</s>").render(conversation);
      size_t behind = 0, bytes = 0;
      for (const TrainedSpan& span : text.trained) {
        CHECK(span.bytes.begin >= behind);
        CHECK(span.bytes.end > span.bytes.begin);
        behind = span.bytes.end;
        bytes += span.bytes.end - span.bytes.begin;
        CHECK(conversation.turns[span.turn].role == "assistant");
      }
      CHECK(behind <= text.text.size());
      CHECK(bytes > 0);
      CHECK(bytes < text.text.size());
      behind = 0;
      for (const TextSpan& span : text.plain) {
        CHECK(span.begin >= behind);
        CHECK(text.text.substr(span.begin, span.end - span.begin) == "</s>");
        behind = span.end;
      }
      ++rendered;
    } catch (const Error& e) {
      CHECK((e.code() == ErrorCode::data || e.code() == ErrorCode::model));
      ++refused;
    }
  }
  CHECK(rendered > 150);
  CHECK(refused > 300);
}
