// SPDX-License-Identifier: Apache-2.0
// Renderings per second and core: bantam_jinja_bench [TEMPLATE.jinja]
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "finetune/text/jinja/jinja.h"
#include "kernels/error.h"

using namespace bantam;

namespace {

constexpr const char* kChatMl =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' + '\n' }}"
    "{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' + '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

JinjaValue chat() {
  const auto message = [](const char* role, const char* content) {
    return JinjaValue::dict({{"role", role}, {"content", content}});
  };
  return JinjaValue::dict(
      {{"messages", JinjaValue::list({message("user", "What is the capital of France, and how many people live there?"),
                                      message("assistant", "Paris. About two million people live in the city itself."),
                                      message("user", "And in the whole region?"),
                                      message("assistant", "About twelve million people live in the region.")})},
       {"add_generation_prompt", false},
       {"bos_token", "<s>"},
       {"eos_token", "</s>"}});
}

}  // namespace

int main(int argc, char** argv) try {
  std::string source = kChatMl;
  if (argc > 1) {
    std::ifstream in(argv[1]);
    source.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto parsed = JinjaTemplate::parse(source, argc > 1 ? argv[1] : "chatml");
  const JinjaValue context = chat();
  size_t bytes = 0;
  for (int round = 0; round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    int count = 0;
    double seconds = 0;
    for (; seconds < 0.5; seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()) {
      for (int i = 0; i < 100; ++i, ++count) bytes += parsed.render(context).text.size();
    }
    std::printf("%9.0f renderings/s, %6.2f us each\n", count / seconds, 1e6 * seconds / count);
  }
  return bytes == 0;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
