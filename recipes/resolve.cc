// SPDX-License-Identifier: Apache-2.0
#include "resolve.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "../kernels/error.h"
#include "dataset_keys.h"
#include "values.h"

namespace bantam {
namespace {

constexpr size_t kMostProblems = 20;

/// ~ and the current directory are resolved here, once, so that a resolved recipe means the same from anywhere.
std::string absolute_path(const std::string& text) {
  std::filesystem::path path = text;
  if (text == "~" || text.substr(0, 2) == "~/") {
    if (const char* home = std::getenv("HOME")) path = std::string(home) + text.substr(1);
  }
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  std::string out = (error ? path : absolute).lexically_normal().string();
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

class Resolver {
 public:
  Resolver(const Settings& from_file, const Settings& from_flags, Resolution& resolution)
      : file_(from_file), flags_(from_flags), r_(resolution) {}

  Recipe run() {
    alternatives("gradient_accumulation_steps", "effective_batch_size");
    alternatives("val_set_size", "test_datasets");
    for (const Settings* settings : {&file_, &flags_}) {
      for (const auto& [key, setting] : *settings) key->set(recipe_, *key, setting.value);
    }
    require();
    batch();
    checkpointing();
    offloading();
    evaluation();
    per_epoch("eval_steps", recipe_.eval_steps);
    per_epoch("save_steps", recipe_.save_steps);
    double_quant();
    data();
    paths();
    return recipe_;
  }

 private:
  const Setting* in(const Settings& settings, const char* name) const {
    const auto found = settings.find(find_key(name));
    return found == settings.end() ? nullptr : &found->second;
  }
  const Setting* given(const char* name) const {
    const Setting* flag = in(flags_, name);
    return flag ? flag : in(file_, name);
  }
  void fail(const Setting& setting, std::string message) { r_.problems.push_back({setting.place, std::move(message)}); }

  static bool off(const Setting& s) {
    if (std::holds_alternative<std::monostate>(s.value)) return true;
    if (const auto* number = std::get_if<double>(&s.value)) return *number == 0;
    if (const auto* list = std::get_if<std::vector<Recipe::Dataset>>(&s.value)) return list->empty();
    return false;
  }

  /// Two keys that say the same thing in two ways: both at one level contradict, a flag replaces the file's.
  void alternatives(const char* a, const char* b) {
    for (const Settings* settings : {&file_, &flags_}) {
      const Setting *one = in(*settings, a), *two = in(*settings, b);
      if (!one || !two || off(*one) || off(*two)) continue;
      const bool in_order = std::tie(one->place.line, one->place.column) < std::tie(two->place.line, two->place.column);
      const Setting &first = in_order ? *one : *two, &second = in_order ? *two : *one;
      fail(second, str("contradicts ", first.place.path, first.place.line > 0 ? str(" on line ", first.place.line) : "",
                       ", keep one of the two"));
    }
    for (const auto& [winner, loser] : {std::pair{a, b}, std::pair{b, a}}) {
      const Setting* flag = in(flags_, winner);
      if (flag && !off(*flag)) file_.erase(find_key(loser));
    }
  }

  void require() {
    for (const KeySpec& key : key_table()) {
      // Given, but wrong: that has its own message.
      if (!key.required || r_.tried.count(&key) > 0) continue;
      if (key.name == "output_dir" && r_.file.empty()) continue;
      std::string flag = key.name == "datasets" ? "data" : key.name;
      std::replace(flag.begin(), flag.end(), '_', '-');
      const std::string path = r_.file.empty() ? "--" + flag : str(r_.file, ": ", key.section, ".", key.name);
      r_.problems.push_back({{0, 0, path}, str("missing, expected ", expected(key))});
    }
  }

  void batch() {
    if (!recipe_.micro_batch_size && !recipe_.effective_batch_size) {
      if (const Setting* s = given("micro_batch_size"))
        fail(*s,
             "found auto, which needs effective_batch_size (rows per optimiser step) instead of "
             "gradient_accumulation_steps");
      return;
    }
    if (!recipe_.effective_batch_size) return;
    if (!recipe_.micro_batch_size) return;  // auto: decided when the plan is made
    const int64_t rows = *recipe_.effective_batch_size, micro = *recipe_.micro_batch_size;
    if (rows % micro != 0) {
      if (const Setting* s = given("effective_batch_size")) {
        fail(*s, str("found ", rows, ", expected a multiple of micro_batch_size, ", micro));
      }
      return;
    }
    recipe_.gradient_accumulation_steps = rows / micro;
    recipe_.effective_batch_size.reset();
    r_.notices.push_back(str("effective_batch_size ", rows, " is micro_batch_size ", micro,
                             " x gradient_accumulation_steps ", rows / micro));
  }

  void double_quant() {
    if (recipe_.quant_type != Recipe::QuantType::none) return;
    const Setting* s = given("double_quant");
    // A flag that switches 4 bits off replaces what the file says of them.
    const bool replaced = s && s->place.line > 0 && in(flags_, "quant_type");
    if (s && recipe_.double_quant && !replaced) {
      fail(*s, "found true, but quant_type is none: there is nothing to quantise twice");
    }
    recipe_.double_quant = false;
  }

  void checkpointing() {
    const Setting* save = given("selective_checkpointing");
    if (save && recipe_.gradient_checkpointing != Recipe::Checkpointing::selective) {
      if (save->place.line > 0 && in(flags_, "gradient_checkpointing")) {
        recipe_.selective_checkpointing.clear();
        r_.notices.push_back(
            str("selective_checkpointing is not used: ", in(flags_, "gradient_checkpointing")->place.path));
      } else {
        fail(*save, "only with gradient_checkpointing: selective");
      }
    }
  }

  void offloading() {
    const Setting* s = given("activation_offloading");
    if (s && recipe_.activation_offloading && recipe_.device == "cpu")
      fail(*s, "found true, but device cpu computes in host memory itself: leave it out, or use device: cuda");
  }

  void evaluation() {
    const bool has_data = !recipe_.test_datasets.empty() || recipe_.val_set_size > 0;
    if (has_data && r_.evaluation_off) {
      const Setting* data = given(recipe_.test_datasets.empty() ? "val_set_size" : "test_datasets");
      r_.problems.push_back({*r_.evaluation_off, str("contradicts ", data ? data->place.path : "val_set_size",
                                                     ": leave one of the two out")});
    }
    if (const Setting* s = given("eval_steps"); s && !has_data) {
      r_.notices.push_back(str(s->place.path, " has no effect: neither test_datasets nor val_set_size is set"));
    }
  }

  void per_epoch(const char* name, std::optional<double>& steps) {
    const Setting* s = given(name);
    if (!s || s->per_epoch <= 1) return;
    if (recipe_.max_steps) {
      fail(*s, str("cannot be used with max_steps, which sets no number of epochs; use ", name));
      return;
    }
    const double fraction = 1.0 / (static_cast<double>(s->per_epoch) * recipe_.num_epochs);
    if (fraction >= 1) {
      fail(*s, str("found ", s->per_epoch, ", but num_epochs is ", format_number(recipe_.num_epochs), "; use ", name));
      return;
    }
    steps = fraction;
    r_.notices.push_back(str(s->written, " ", s->per_epoch, " is ", name, " ", format_number(fraction)));
  }

  void data() {
    const Recipe::Dataset defaults;
    for (const auto& [name, list] :
         {std::pair{"datasets", &recipe_.datasets}, std::pair{"test_datasets", &recipe_.test_datasets}}) {
      for (size_t i = 0; i < list->size(); ++i) {
        Recipe::Dataset& d = (*list)[i];
        if (d.type == Recipe::DatasetType::automatic) d.type = recipe_.type;
        d.path = absolute_path(d.path);
        if (d.type == DatasetType::automatic) continue;
        std::string unused;
        for (const DatasetKey& key : dataset_keys()) {
          if (key.read_by.empty() || std::count(key.read_by.begin(), key.read_by.end(), d.type) > 0) continue;
          const bool set = key.text              ? d.*key.text != defaults.*key.text
                           : key.name == "roles" ? !d.roles.empty()
                                                 : d.sample_by != defaults.sample_by;
          if (set) unused += (unused.empty() ? "" : ", ") + key.name;
        }
        if (const Setting* s = given(name); s && !unused.empty()) {
          Setting at = *s;
          at.place.path += str("[", i, "]");
          fail(at, str("found ", unused, ", which the type ", dataset_types().at(static_cast<size_t>(d.type)).name,
                       " does not read"));
        }
      }
    }
  }

  void paths() {
    if (recipe_.output_dir.empty() && r_.file.empty() && !recipe_.datasets.empty()) {
      // absolute_path first: "." and a trailing slash have no name of their own.
      const std::filesystem::path model = absolute_path(recipe_.base_model);
      const std::string name = model.extension() == ".gguf" ? model.stem().string() : model.filename().string();
      recipe_.output_dir = str("./outputs/", name, "-", data_name(recipe_.datasets[0].path));
    }
    for (std::string* path : {&recipe_.base_model, &recipe_.output_dir}) {
      if (!path->empty()) *path = absolute_path(*path);
    }
    std::string& resume = recipe_.resume_from_checkpoint;
    if (resume != "auto" && resume != "false") resume = absolute_path(resume);
    std::string& prepared = recipe_.dataset_prepared_path;
    if (prepared != "cache" && prepared != "none") prepared = absolute_path(prepared);
    // A name has no folder and no ending.
    std::string& chat_template = recipe_.chat_template;
    if (chat_template.ends_with(".jinja") || chat_template.find('/') != std::string::npos)
      chat_template = absolute_path(chat_template);
  }

  Settings file_, flags_;
  Resolution& r_;
  Recipe recipe_;
};

}  // namespace

std::string show_place(const std::string& file, const Place& place) {
  if (place.line <= 0) return place.path;
  return str(file, ":", place.line, ":", place.column, place.path.empty() ? "" : ": ", place.path);
}

Recipe resolve(const Settings& from_file, const Settings& from_flags, Resolution& resolution) {
  return Resolver(from_file, from_flags, resolution).run();
}

void throw_problems(const std::string& file, std::vector<Problem>& problems) {
  if (problems.empty()) return;
  std::stable_sort(problems.begin(), problems.end(), [](const Problem& a, const Problem& b) {
    const auto order = [](const Problem& p) { return std::tuple(p.place.line <= 0, p.place.line, p.place.column); };
    return order(a) < order(b);
  });
  std::string message;
  for (size_t i = 0; i < std::min(problems.size(), kMostProblems); ++i) {
    message += str(i ? "\n" : "", show_place(file, problems[i].place), ": ", problems[i].message);
  }
  if (problems.size() > kMostProblems) message += str("\nand ", problems.size() - kMostProblems, " more");
  throw Error(ErrorCode::usage, message, "bantam config-schema lists every key, bantam train --help explains them");
}

}  // namespace bantam
