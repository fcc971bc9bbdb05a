// SPDX-License-Identifier: Apache-2.0
#include "run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "../finetune/train/run_state.h"
#include "../quant/safetensors.h"
#include "load.h"
#include "resolved.h"

namespace bantam {

namespace {
namespace fs = std::filesystem;
constexpr const char* kRecipe = "recipe.resolved.yaml";
constexpr const char* kFinished = "finished.json";
constexpr const char* kMetrics = "metrics.jsonl";

bool is_there(const fs::path& p) {
  std::error_code ec;
  return fs::exists(p, ec);
}
}  // namespace

bool RunFolder::has_run() const {
  return is_there(path_ / kRecipe) || !list_checkpoints(path_).empty();
}
bool RunFolder::is_finished() const {
  return is_there(path_ / kFinished);
}

void RunFolder::remove_run() const {
  std::error_code ec;
  for (const int64_t s : list_checkpoints(path_)) fs::remove_all(path_ / str("checkpoint-", s), ec);
  for (const char* name : {kRecipe, kFinished, kMetrics, "plan.json", "data_report.json", "adapter_model.safetensors",
                           "adapter_config.json", "chat_template.jinja"})
    fs::remove(path_ / name, ec);
}

RunFolder::RunFolder(const Recipe& recipe, const CommandOptions& options) : path_(recipe.output_dir) {
  std::error_code ec;
  fs::create_directories(path_, ec);
  if (ec)
    throw Error(ErrorCode::io, str("output_dir ", path_.string(), ": cannot be created: ", ec.message()),
                "name a folder that can be written");
  lock_ = ::open((path_ / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0)
    throw Error(ErrorCode::io, str("output_dir ", path_.string(), ": cannot be written: ", std::strerror(errno)),
                "name a folder that can be written");
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    throw Error(ErrorCode::io, str("output_dir ", path_.string(), ": another process trains into it"),
                "wait for it, or name another output_dir");
  }
  try {
    if (!has_run()) return;
    if (options.overwrite) {
      remove_run();
      return;
    }
    const std::string ways = "--overwrite starts anew in it, --output-dir names another";
    if (is_finished())
      throw Error(ErrorCode::usage, str("output_dir ", path_.string(), ": holds a finished run"), ways);
    if (recipe.resume_from_checkpoint == "false")
      throw Error(ErrorCode::usage,
                  str("output_dir ", path_.string(), ": holds an unfinished run, and resume_from_checkpoint is false"),
                  ways);
    if (!is_there(path_ / kRecipe)) return;
    std::string differ;
    bool on_demand_only = true;
    for (const RecipeDifference& d : recipe_differences(load_recipe(path_ / kRecipe).recipe, recipe)) {
      if (d.resume == Resume::free || d.resume == Resume::ignored) continue;
      on_demand_only = on_demand_only && d.resume == Resume::on_demand;
      differ += str("\n  ", d.key, ": ", d.before, " there, ", d.after, " now");
    }
    if (!differ.empty() && !(on_demand_only && options.resume))
      throw Error(ErrorCode::usage,
                  str("output_dir ", path_.string(), ": holds an unfinished run of another recipe:", differ),
                  on_demand_only ? "--resume goes on with the new values; " + ways : ways);
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

std::string RunFolder::earlier_date() const {
  if (list_checkpoints(path_).empty()) return {};
  std::ifstream in(path_ / "data_report.json", std::ios::binary);
  if (!in) return {};
  const auto j = nlohmann::json::parse(std::string(std::istreambuf_iterator<char>(in), {}), nullptr, false);
  return j.is_object() && j.contains("today") && j["today"].is_string() ? j["today"].get<std::string>() : std::string();
}

std::string RunFolder::earlier_plan() const {
  if (list_checkpoints(path_).empty()) return {};
  std::ifstream in(path_ / "plan.json", std::ios::binary);
  return in ? std::string(std::istreambuf_iterator<char>(in), {}) : std::string();
}

void RunFolder::begin(const Recipe& recipe, const std::string& plan_json, const std::string& data_report_json) {
  write_file_atomically(path_ / kRecipe, to_yaml(recipe, "The recipe as it ran: defaults filled in, paths absolute."));
  write_file_atomically(path_ / "plan.json", plan_json);
  write_file_atomically(path_ / "data_report.json", data_report_json);
}

void RunFolder::metric(const std::string& json_line) {
  std::ofstream out(path_ / kMetrics, std::ios::app | std::ios::binary);
  out << json_line << '\n';
  out.flush();
  if (!out) throw Error(ErrorCode::io, str((path_ / kMetrics).string(), ": cannot be written"), "is the disk full?");
}

void RunFolder::drop_metrics_after(int64_t step) {
  std::ifstream in(path_ / kMetrics, std::ios::binary);
  if (!in) return;
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const auto j = nlohmann::json::parse(line, nullptr, false);
    if (j.is_object() && j.contains("step") && j["step"].is_number_integer() && j["step"].get<int64_t>() <= step)
      kept += line + "\n";
  }
  in.close();
  write_file_atomically(path_ / kMetrics, kept);
}

void RunFolder::finish() {
  write_file_atomically(path_ / kFinished, "{\"finished\": true}\n");
}

}  // namespace bantam
