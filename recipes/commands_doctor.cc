// SPDX-License-Identifier: Apache-2.0
// What this machine has, whether each device computes what the reference does, and what `device: auto` would take.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "../finetune/train/calibrate.h"
#include "../finetune/train/self_check.h"
#include "../kernels/cudnn_shapes.h"
#include "../kernels/device_choice.h"
#include "commands.h"
#include "session.h"

namespace bantam {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string version_text(int v) {
  return str(v / 1000, ".", v % 1000 / 10);
}

Json check(const ContextOptions& options, bool quiet) {
  Json j;
  try {
    Context ctx(options);
    const bool cpu = ctx.backend().host_memory;
    const std::string name = cpu ? str("cpu ", name_of(ctx.isa())) : ctx.device_name();
    j["device"] = name;
    if (!quiet) std::fprintf(stderr, "checking %s\n", name.c_str());
    const SelfCheck result = self_check(ctx);
    j["good"] = result.good;
    j["message"] = result.message;
    j["seconds"] = result.seconds;
    j["product_flops"] = product_rate(ctx);
  } catch (const Error& e) {
    if (!j.contains("device")) j["device"] = str("cuda:", options.device);
    j["good"] = false;
    j["message"] = e.what();
  }
  return j;
}

// What attention runs through on a device.
std::string attention_text(const Backend& backend, int device) {
  if (!backend.attention_library) return "built in";
  const AttentionLibrary l = backend.attention_library(device);
  if (l.version > 0) return str("cuDNN ", cudnn_text(l.version), " where it can, else built in");
  return str("built in, ", l.why);
}

// The GPUs, each with whether it may be used; `why` is set where there is nothing to list.
Json gpus(std::string& why) {
  Json list = Json::array();
  const bool by_path = cuda_library().find('/') != std::string::npos;
  const int seen = nvidia_gpu_count();
  if (!by_path && seen == 0) {
    why = "the NVIDIA driver reports no GPU";
    return list;
  }
  try {
    const Backend& backend = load_backend(cuda_library());
    for (int d = 0; d < backend.device_count(); ++d) {
      const DeviceInfo i = backend.device_info(d);
      list.push_back({{"device", str("cuda:", d)},
                      {"name", i.name},
                      {"compute_capability", str(i.major, ".", i.minor)},
                      {"memory_free", i.memory_free},
                      {"memory_total", i.memory_total},
                      {"driver_cuda", version_text(i.driver)},
                      {"runtime_cuda", version_text(i.runtime)},
                      {"has_code", i.has_code},
                      {"attention", attention_text(backend, d)}});
    }
  } catch (const Error& e) {
    why = e.what();
  }
  return list;
}

void row(const std::string& name, const std::string& text) {
  std::printf("%-16s %s\n", name.c_str(), text.c_str());
}

void print(const Json& j) {
  row("bantam", j["version"].get<std::string>());
  const Json& cpu = j["cpu"];
  row("cpu", str(cpu["name"].get<std::string>(), ", ", cpu["threads"], " threads, runs ", cpu["isa"].get<std::string>(),
                 " of ", cpu["best_isa"].get<std::string>()));
  row("memory", size_text(cpu["memory_available"].get<size_t>()) + " available");
  row("cache", str(j["cache"]["path"].get<std::string>(), ", ", size_text(j["cache"]["free"].get<size_t>()), " free"));
  row("libraries", j["libraries"].get<std::string>());
  if (j["cuda"]["devices"].empty()) row("cuda", j["cuda"]["why"].get<std::string>());
  for (const Json& d : j["cuda"]["devices"])
    row(d["device"].get<std::string>(),
        str(d["name"].get<std::string>(), ", compute capability ", d["compute_capability"].get<std::string>(), ", ",
            size_text(d["memory_free"].get<size_t>()), " free of ", size_text(d["memory_total"].get<size_t>()),
            ", CUDA ", d["runtime_cuda"].get<std::string>(), ", driver for ", d["driver_cuda"].get<std::string>(),
            d["has_code"].get<bool>() ? "" : "; this build has no code for it",
            "; attention: ", d["attention"].get<std::string>()));
  row("auto", "device: auto is " + j["auto"].get<std::string>());
  std::printf("\n");
  for (const Json& c : j["checks"]) {
    std::string text = str(c["good"].get<bool>() ? "good" : "WRONG", ": ", c["message"].get<std::string>());
    if (c.contains("product_flops")) {
      char rate[64];
      std::snprintf(rate, sizeof rate, "; products %.3g TFLOP/s", c["product_flops"].get<double>() / 1e12);
      text += rate;
    }
    row(c["device"].get<std::string>(), text);
  }
}

}  // namespace

int doctor_command(const CommandOptions& options) {
  const Context cpu;
  Json j;
  j["version"] = BANTAM_VERSION;
  j["cpu"] = {{"name", machine_name(cpu)},
              {"threads", cpu.num_threads()},
              {"isa", name_of(cpu.isa())},
              {"best_isa", name_of(best_isa())},
              {"memory_available", available_memory()}};
  std::error_code ec;
  fs::path cache = default_cache_dir(), there = cache;
  while (!fs::exists(there, ec) && there.has_parent_path() && there != there.parent_path()) there = there.parent_path();
  const fs::space_info space = fs::space(there, ec);
  j["cache"] = {{"path", cache.string()}, {"free", ec ? 0 : space.available}};
  j["libraries"] = BANTAM_LIBRARIES;
  std::string why;
  const Json devices = gpus(why);
  j["cuda"] = {{"devices", devices}, {"why", why}};
  const DeviceChoice choice = choose_device("auto", cuda_library());
  j["auto"] = choice.options.backend.empty() ? "cpu" : str("cuda:", choice.options.device);

  bool good = true;
  const auto add = [&](const ContextOptions& o) {
    j["checks"].push_back(check(o, options.quiet || options.json));
    good = good && j["checks"].back()["good"].get<bool>();
  };
  add({.isa = cpu.isa()});
  if (best_isa() != cpu.isa()) add({.isa = best_isa()});
  // A process computes on one GPU: the one that auto takes.
  if (!choice.options.backend.empty()) add(choice.options);
  if (options.json)
    std::printf("%s\n", j.dump(2).c_str());
  else
    print(j);
  return good ? 0 : static_cast<int>(ErrorCode::device);
}

}  // namespace bantam
