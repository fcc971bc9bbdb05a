// SPDX-License-Identifier: Apache-2.0
// Which safetensors files a model folder consists of.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "../kernels/error.h"
#include "safetensors.h"

namespace bantam {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

bool inside(const fs::path& path, const fs::path& folder) {
  const auto [a, b] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return a == folder.end() && b != path.end();
}

// A link must stay in the folder. The one exception is the layout of the Hugging Face cache, where a snapshot's files
// are links into the blobs of the same repository.
fs::path checked_file(const fs::path& folder, const std::string& name) {
  const fs::path path = folder / name;
  std::error_code ec;
  const fs::path real = fs::canonical(path, ec), home = fs::canonical(folder, ec);
  if (ec) return path;  // opening it will say what is wrong
  const fs::path repository = home.parent_path().parent_path();
  const bool cache = home.parent_path().filename() == "snapshots" && inside(real, repository / "blobs");
  if (!inside(real, home) && !cache)
    throw Error(ErrorCode::model, str(path.string(), ": is a link to ", real.string(), ", outside the model's folder"),
                "put the file itself into the folder");
  return path;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < 10; ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > 10) text += str(" and ", names.size() - 10, " more");
  return text;
}

void add_file(SafetensorsFolder& out, const fs::path& path) {
  const auto file = SafetensorsFile::open(path);
  out.files.push_back(file);
  for (const auto& e : file->entries()) {
    out.index[e.name] = out.items.size();
    out.items.push_back({file.get(), &e});
  }
}

std::map<std::string, std::string> read_index(const fs::path& path) {
  const auto file = MappedFile::open(path);
  const auto bytes = file->bytes();
  const char* text = reinterpret_cast<const char*>(bytes.data());
  if (const std::string wrong = describe_wrong_file(bytes); !wrong.empty())
    throw Error(ErrorCode::model, str(path.string(), ": this is ", wrong), "fetch the real file");
  std::map<std::string, std::string> map;
  try {
    const json index = json::parse(text, text + bytes.size());
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
      throw Error(ErrorCode::model, str(path.string(), ": has no weight_map object"));
    for (const auto& [name, value] : index["weight_map"].items()) {
      if (!value.is_string() || !plain_file_name(value.get<std::string>()))
        throw Error(ErrorCode::model, str(path.string(), ": weight_map['", name, "'] is ",
                                          value.dump(-1, ' ', false, json::error_handler_t::replace),
                                          ", expected the plain name of a file in the same folder"));
      map[name] = value.get<std::string>();
    }
  } catch (const json::exception& e) {
    throw Error(ErrorCode::model, str(path.string(), ": not JSON: ", e.what()), "download the file again");
  }
  if (map.empty()) throw Error(ErrorCode::model, str(path.string(), ": weight_map is empty"));
  return map;
}

SafetensorsFolder open_sharded(const fs::path& folder, const fs::path& index_path) {
  const auto map = read_index(index_path);
  std::set<std::string> shards;
  for (const auto& [name, shard] : map) shards.insert(shard);
  std::vector<std::string> missing;
  for (const auto& shard : shards)
    if (std::error_code ec; !fs::exists(folder / shard, ec)) missing.push_back(shard);
  if (!missing.empty())
    throw Error(
        ErrorCode::model,
        str(index_path.string(), ": ", missing.size(), " of ", shards.size(), " shards are missing: ", listed(missing)),
        "download the missing files into the same folder");
  SafetensorsFolder out;
  std::map<std::string, const SafetensorsFile*> by_name;
  for (const auto& shard : shards) {
    out.files.push_back(SafetensorsFile::open(checked_file(folder, shard)));
    by_name[shard] = out.files.back().get();
  }
  for (const auto& [name, shard] : map) {
    const auto* e = by_name[shard]->find(name);
    if (!e) {
      missing.push_back(str("'", name, "' in ", shard));
      continue;
    }
    out.index[name] = out.items.size();
    out.items.push_back({by_name[shard], e});
  }
  if (!missing.empty())
    throw Error(
        ErrorCode::model,
        str(index_path.string(), ": ", missing.size(), " tensors are not where the index says: ", listed(missing)),
        "download index and shards again, from the same revision");
  // A tensor that the index forgot is still the model's.
  for (const auto& file : out.files)
    for (const auto& e : file->entries())
      if (out.index.try_emplace(e.name, out.items.size()).second) out.items.push_back({file.get(), &e});
  return out;
}

}  // namespace

const SafetensorsFolder::Item* SafetensorsFolder::find(std::string_view name) const {
  const auto it = index.find(name);
  return it == index.end() ? nullptr : &items[it->second];
}

std::string SafetensorsFolder::fingerprint() const {
  std::string text;
  for (const auto& f : files) text += f->fingerprint() + "\n";
  return text;
}

SafetensorsFolder open_safetensors_folder(const fs::path& folder) {
  std::error_code ec;
  if (!fs::is_directory(folder, ec)) throw Error(ErrorCode::model, str(folder.string(), ": not a folder"));
  const fs::path index = folder / "model.safetensors.index.json";
  if (fs::exists(index, ec)) return open_sharded(folder, index);
  std::vector<std::string> found, others;
  for (const auto& item : fs::directory_iterator(folder, ec)) {
    const std::string name = item.path().filename().string(), ext = item.path().extension().string();
    if (ext == ".safetensors") found.push_back(name);
    if (ext == ".bin" || ext == ".pt" || ext == ".pth" || ext == ".gguf") others.push_back(name);
  }
  std::sort(found.begin(), found.end());
  std::sort(others.begin(), others.end());
  if (found.empty()) {
    std::string hint = "give a folder with model.safetensors, or a .gguf file";
    if (!others.empty())
      hint = others[0].ends_with(".gguf") ? str("give the file itself: ", (folder / others[0]).string())
                                          : "pickle checkpoints are not read: save it as safetensors first";
    throw Error(ErrorCode::model,
                str(folder.string(), ": no *.safetensors here", others.empty() ? "" : str(", but ", listed(others))),
                hint);
  }
  if (found.size() > 1)
    throw Error(ErrorCode::model,
                str(folder.string(), ": ", found.size(),
                    " safetensors files and no model.safetensors.index.json: ", listed(found)),
                "add the index, or leave only the one file that is the model");
  SafetensorsFolder out;
  add_file(out, checked_file(folder, found[0]));
  return out;
}

}  // namespace bantam
