// SPDX-License-Identifier: Apache-2.0
#include "backend.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <vector>

#include "context.h"
#include "error.h"

namespace bantam {

namespace {
// Folders where a backend library may lie, relative to the file that contains this code.
std::vector<std::filesystem::path> backend_folders() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&load_backend), &info) || !info.dli_fname) return {};
  std::error_code ignored;
  const auto here = std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path();
  return {here, here / "bantam", here.parent_path() / "lib" / "bantam"};
}
}  // namespace

AttentionLibrary attention_library(const Context& ctx) {
  return ctx.backend().attention_library ? ctx.backend().attention_library(ctx.device()) : AttentionLibrary{};
}

const Backend& load_backend(const std::string& name_or_path) {
  static std::mutex mutex;
  static std::map<std::string, const Backend*> loaded;
  const std::lock_guard lock(mutex);
  if (const auto it = loaded.find(name_or_path); it != loaded.end()) return *it->second;

  std::vector<std::string> tries;
  if (name_or_path.find('/') != std::string::npos) {
    tries = {name_or_path};
  } else {
    const std::string file = "libbantam_" + name_or_path + ".so";
    for (const auto& f : backend_folders())
      if (std::filesystem::exists(f / file)) tries.push_back((f / file).string());
    tries.push_back(file);
  }
  std::string why;
  for (const auto& t : tries) {
    void* handle = dlopen(t.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      why += str(why.empty() ? "" : "; ", dlerror());
      continue;
    }
    using Entry = const Backend* (*)(int);
    const auto entry = reinterpret_cast<Entry>(dlsym(handle, "bantam_backend"));
    const Backend* backend = entry ? entry(Backend::kAbi) : nullptr;
    if (!backend)
      throw Error(ErrorCode::device,
                  str(t, ": not a backend library of this version of bantam (table version ", Backend::kAbi, ")"),
                  "install program and backends from one build");
    return *(loaded[name_or_path] = backend);
  }
  throw Error(ErrorCode::device, str("backend '", name_or_path, "' cannot be loaded: ", why),
              "is it built and installed beside bantam? `device: cpu` always works");
}

void detail::throw_no_op(const Context& ctx, const char* op) {
  throw Error(ErrorCode::device, str("backend '", ctx.backend().name, "' has no op '", op, "'"), "use `device: cpu`");
}

}  // namespace bantam
