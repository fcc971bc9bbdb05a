// SPDX-License-Identifier: Apache-2.0
#include "run_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../../kernels/error.h"
#include "../../kernels/hash.h"
#include "../../lora/peft_files.h"
#include "../../quant/safetensors.h"
#include "../../quant/tensor_source.h"

namespace bantam {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kState = "trainer_state.json";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr std::string_view kName = "checkpoint-";
constexpr std::string_view kUnfinished = ".unfinished-checkpoint-";

std::string hash_file(const fs::path& path, uint64_t* size) {  // against damage, not against forgery
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::model, str(path.string(), ": cannot be read"));
  uint64_t h = kFnvStart, n = 0;
  std::vector<char> buffer(size_t{1} << 16);
  while (in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    h = fnv1a(buffer.data(), static_cast<size_t>(in.gcount()), h);
    n += static_cast<uint64_t>(in.gcount());
  }
  *size = n;
  return hex64(h);
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
}

int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kName)) return -1;
  int64_t step = -1;
  const auto [end, ec] = std::from_chars(name.data() + kName.size(), name.data() + name.size(), step);
  return ec == std::errc{} && end == name.data() + name.size() ? step : -1;
}

Json read_json(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::model, str(path.string(), ": no such file"));
  const Json j = Json::parse(in, nullptr, false);
  if (!j.is_object()) throw Error(ErrorCode::model, str(path.string(), ": not a JSON object"));
  return j;
}

void check_manifest(const fs::path& folder) {
  const Json j = read_json(folder / kManifest);
  if (!j.contains("files") || !j["files"].is_object() || j["files"].empty())
    throw Error(ErrorCode::model, str((folder / kManifest).string(), ": no list of files"));
  for (const auto& [name, entry] : j["files"].items()) {
    if (name.find('/') != std::string::npos || !entry.is_object())
      throw Error(ErrorCode::model, str((folder / kManifest).string(), ": bad entry '", name, "'"));
    uint64_t size = 0;
    const std::string hash = hash_file(folder / name, &size);
    if (entry.value("bytes", uint64_t{0}) != size || entry.value("fnv1a", std::string()) != hash)
      throw Error(
          ErrorCode::model,
          str((folder / name).string(), ": found ", size, " bytes with hash ", hash, ", expected ", entry.dump()),
          "the file is damaged");
  }
}

// AdamW's moments by parameter: the order of the flat buffers is nobody's business but this process's.
template <class Value>
struct Moment {
  std::string name;
  const Parameter& parameter;
  std::span<Value> values;
};
template <class Value, class Set>
std::vector<Moment<Value>> moments(Set& adapters) {
  std::vector<Moment<Value>> out;
  for (const Parameter& p : adapters.parameters()) {
    const auto part = [&](std::span<Value> flat) {
      return flat.subspan(static_cast<size_t>(p.offset), static_cast<size_t>(p.size()));
    };
    out.push_back({"exp_avg." + p.name, p, part(adapters.exp_avg())});
    out.push_back({"exp_avg_sq." + p.name, p, part(adapters.exp_avg_sq())});
  }
  return out;
}

void save_moments(const fs::path& path, const AdapterSet& adapters) {
  const auto list = moments<const float>(adapters);
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const auto& m : list) tensors.push_back({m.name, "F32", {m.parameter.rows, m.parameter.cols}});
  SafetensorsWriter writer(path, std::move(tensors));
  for (size_t i = 0; i < list.size(); ++i) writer.write(i, 0, list[i].values);
  writer.finish();
}

void read_moments(const fs::path& path, AdapterSet& adapters) {
  const auto file = SafetensorsFile::open(path);
  for (const auto& m : moments<float>(adapters)) {
    const SafetensorsEntry* e = file->find(m.name);
    const std::vector<int64_t> shape = {m.parameter.rows, m.parameter.cols};
    if (!e || e->dtype != "F32" || e->shape != shape)
      throw Error(ErrorCode::model,
                  str(path.string(), ": found ", e ? str(e->dtype, " ", shape_text(e->shape)) : "nothing",
                      ", expected ", m.name, " F32 ", shape_text(shape)),
                  "the checkpoint is of another run, or of an earlier version of bantam");
    safetensors_decode(*file, *e, 0, m.parameter.size(), m.values.data());
  }
}

}  // namespace

fs::path save_checkpoint(const fs::path& output_dir, const AdapterSet& adapters, const RunState& s,
                         const std::vector<std::string>& all_linears, const std::string& base_model_name) {
  const fs::path target = output_dir / (std::string(kName) + std::to_string(s.step));
  const fs::path beside = output_dir / (std::string(kUnfinished) + std::to_string(s.step));
  std::error_code ec;
  fs::remove_all(beside, ec);
  fs::create_directories(beside, ec);
  if (ec)
    throw Error(ErrorCode::io, str(beside.string(), ": cannot be created: ", ec.message()),
                "is the disk full, or the folder read-only?");
  try {
    save_adapter(beside, adapters, all_linears, {base_model_name});
    save_moments(beside / kOptimizer, adapters);
    const Json state = {{"step", s.step},
                        {"updates", s.updates},
                        {"epoch", s.epoch},
                        {"step_in_epoch", s.step_in_epoch},
                        {"total_steps", s.total_steps},
                        {"run_key", s.run_key},
                        {"machine_key", s.machine_key}};
    write_file_atomically(beside / kState, state.dump(2) + "\n");
    Json files = Json::object();
    for (const auto& f : fs::directory_iterator(beside)) {
      uint64_t size = 0;
      const std::string hash = hash_file(f.path(), &size);
      files[f.path().filename().string()] = {{"bytes", size}, {"fnv1a", hash}};
    }
    write_file_atomically(beside / kManifest, Json{{"files", files}}.dump(2) + "\n");
    sync_folder(beside);
    fs::remove_all(target, ec);  // the same step again, after a resume from before it
    fs::rename(beside, target, ec);
    if (ec) throw Error(ErrorCode::io, str(target.string(), ": cannot be renamed: ", ec.message()));
    sync_folder(output_dir);
  } catch (...) {
    fs::remove_all(beside, ec);
    throw;
  }
  return target;
}

std::vector<int64_t> list_checkpoints(const fs::path& output_dir) {
  std::vector<int64_t> steps;
  std::error_code ec;
  for (fs::directory_iterator it(output_dir, ec), end; !ec && it != end; it.increment(ec))
    if (const int64_t s = step_of(it->path()); s >= 0) steps.push_back(s);
  std::sort(steps.begin(), steps.end());
  return steps;
}

void rotate_checkpoints(const fs::path& output_dir, int64_t keep) {
  const auto steps = list_checkpoints(output_dir);
  std::error_code ec;
  for (size_t i = 0; i + static_cast<size_t>(std::max<int64_t>(keep, 1)) < steps.size(); ++i)
    fs::remove_all(output_dir / (std::string(kName) + std::to_string(steps[i])), ec);
  std::vector<fs::path> unfinished;
  for (fs::directory_iterator it(output_dir, ec), end; !ec && it != end; it.increment(ec))
    if (it->path().filename().string().starts_with(kUnfinished)) unfinished.push_back(it->path());
  for (const auto& p : unfinished) fs::remove_all(p, ec);
}

RunState load_checkpoint(const fs::path& folder, AdapterSet& adapters) {
  check_manifest(folder);
  const Json j = read_json(folder / kState);
  RunState s;
  try {
    s.step = j.at("step");
    s.updates = j.at("updates");
    s.epoch = j.at("epoch");
    s.step_in_epoch = j.at("step_in_epoch");
    s.total_steps = j.at("total_steps");
    s.run_key = j.at("run_key");
    s.machine_key = j.at("machine_key");
  } catch (const Json::exception& e) {
    throw Error(ErrorCode::model, str((folder / kState).string(), ": ", e.what()));
  }
  read_adapter_values(folder, adapters);
  read_moments(folder / kOptimizer, adapters);
  return s;
}

std::optional<RunState> load_newest_checkpoint(const fs::path& output_dir, AdapterSet& adapters,
                                               const std::function<void(const std::string&)>& warn) {
  auto steps = list_checkpoints(output_dir);
  if (steps.empty()) return std::nullopt;
  for (; !steps.empty(); steps.pop_back()) {
    const fs::path folder = output_dir / (std::string(kName) + std::to_string(steps.back()));
    try {
      return load_checkpoint(folder, adapters);
    } catch (const Error& e) {
      warn(str(folder.string(), " cannot be used: ", e.what()));
    }
  }
  throw Error(ErrorCode::io, str(output_dir.string(), ": none of its checkpoints can be used"),
              "start afresh with --overwrite, or name another output_dir");
}

}  // namespace bantam
