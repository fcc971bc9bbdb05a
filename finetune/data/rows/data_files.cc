// SPDX-License-Identifier: Apache-2.0
// Files that a path, a pattern or a folder stands for.
#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "../../text/edit_distance.h"
#include "../../text/utf8.h"
#include "row_reader_parts.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostShown = 5;
constexpr int kMostFolders = 64;  // one within the other

bool has_pattern(std::string_view s) {
  return s.find_first_of("*?[") != std::string_view::npos;
}
bool is_hidden(const fs::path& p) {
  return p.filename().string().starts_with('.');
}

// In order of name.
std::vector<fs::directory_entry> entries(const fs::path& folder) {
  std::error_code ec;
  std::vector<fs::directory_entry> out;
  auto it = fs::directory_iterator(folder.empty() ? fs::path(".") : folder, ec);
  for (; !ec && it != fs::directory_iterator(); it.increment(ec)) out.push_back(*it);
  if (ec) throw Error(ErrorCode::data, str(folder.string(), ": the folder cannot be read: ", ec.message()));
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return a.path().filename().native() < b.path().filename().native(); });
  return out;
}

bool is_folder(const fs::path& p) {
  std::error_code ec;
  return fs::is_directory(p, ec);
}
// Also a link to nothing: reading it says so, leaving it out would say nothing.
bool is_file(const fs::path& p) {
  std::error_code ec;
  return fs::exists(fs::symlink_status(p, ec)) && !fs::is_directory(p, ec);
}

// Files that usually stand beside data: .md is text when it is named, but README.md in a folder is no data; the .json
// files are those that the Hub and other trainers put there.
bool is_data(const fs::path& p) {
  static const std::set<std::string> kBeside = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                                                "state.json",        "config.json",        "requirements.txt",
                                                "license.txt",       "readme.txt"};
  std::string name = p.filename().string();
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  const auto kind = file_kind(p);
  const bool markdown = name.ends_with(".md") || name.ends_with(".md.gz") || name.ends_with(".md.zst");
  return kind && !markdown && !is_hidden(p) && !kBeside.contains(name);
}

// Names in a folder that are worth saying, as ": a, b, c"; empty when there are none.
std::string shown(const fs::path& folder) {
  std::vector<std::string> names;
  try {
    for (const auto& e : entries(folder)) {
      if (!is_hidden(e.path())) names.push_back(e.path().filename().string() + (is_folder(e.path()) ? "/" : ""));
    }
  } catch (const Error&) {
    return {};
  }
  std::string out;
  for (size_t i = 0; i < names.size() && i < kMostShown; ++i) out += (i == 0 ? "" : ", ") + printable(names[i], 80);
  return names.size() > kMostShown ? str(out, ", and ", names.size() - kMostShown, " more") : out;
}

// What exists of a path that does not.
std::string nearest(const fs::path& path) {
  fs::path folder = path.parent_path(), missing = path;
  while (!folder.empty() && !is_folder(folder)) {
    missing = folder;
    folder = folder.parent_path() == folder ? fs::path() : folder.parent_path();
  }
  const std::string name = missing.filename().string(), place = folder.empty() ? "." : folder.string();
  if (has_pattern(name)) {
    const std::string list = shown(folder);
    return list.empty() ? str("the folder ", place, " is empty") : str(place, " holds ", list);
  }
  std::string best;
  size_t least = name.size() < 3 ? 1 : std::min<size_t>(name.size() / 3 + 2, 5);  // fewer edits than this
  try {
    for (const auto& e : entries(folder)) {
      const std::string other = e.path().filename().string();
      if (other.size() > name.size() + 8) continue;
      if (const size_t n = edit_distance(name, other); n < least) best = other, least = n;
    }
  } catch (const Error&) {
  }
  if (!best.empty()) return str("did you mean ", (folder / best).string(), "?");
  const std::string list = shown(folder);
  const std::string seen = list.empty() ? "nothing" : list;
  return str("there is no ", missing.string(), "; ", place, " holds ", seen);
}

class Pattern {
 public:
  explicit Pattern(const fs::path& pattern) {
    for (const auto& part : pattern.relative_path()) {
      if (!part.empty()) parts_.push_back(part.string());
    }
    if (!parts_.empty() && parts_.back() == "**") parts_.push_back("*");
    walk(pattern.root_path(), 0, 0);
  }
  // A path may be found in several ways through "**".
  std::set<std::string> found;

 private:
  void walk(const fs::path& folder, size_t at, int depth) {
    if (depth > kMostFolders) {
      throw Error(ErrorCode::data, str(folder.string(), ": more than ", kMostFolders, " folders within each other"));
    }
    if (at == parts_.size() || !seen_.insert({folder.string(), at}).second) return;
    const std::string& part = parts_[at];
    const bool last = at + 1 == parts_.size();
    if (part == "**") {
      walk(folder, at + 1, depth);
      for (const auto& e : entries(folder)) {
        std::error_code ec;  // links to folders may lead in circles
        if (!is_hidden(e.path()) && e.is_directory(ec) && !e.is_symlink(ec))
          walk(folder / e.path().filename(), at, depth + 1);
      }
      return;
    }
    if (!has_pattern(part)) {
      const fs::path next = folder / part;
      if (last && is_file(next)) found.insert(next.string());
      if (!last && is_folder(next)) walk(next, at + 1, depth);
      return;
    }
    for (const auto& e : entries(folder)) {
      const fs::path name = e.path().filename();
      // A folder may be called "[v2]".
      if (::fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) != 0 && name != part) continue;
      if (last && is_file(e.path())) found.insert((folder / name).string());
      if (!last && is_folder(e.path())) walk(folder / name, at + 1, depth);
    }
  }

  std::vector<std::string> parts_;
  std::set<std::pair<std::string, size_t>> seen_;
};

}  // namespace

std::vector<std::filesystem::path> data_files(const std::string& path) {
  if (path.empty()) throw Error(ErrorCode::data, "the path of the dataset is empty");
  const fs::path p(path);
  if (is_file(p)) return {p};
  std::vector<fs::path> out;
  if (is_folder(p)) {
    for (const auto& e : entries(p)) {
      if (is_data(e.path()) && is_file(e.path())) out.push_back(p / e.path().filename());
    }
    if (!out.empty()) return out;
    for (const auto& e : entries(p)) {
      if (e.path().extension() == ".parquet") refuse_binary("PAR1", (p / e.path().filename()).string());
    }
    const std::string list = shown(p);
    throw Error(ErrorCode::data, str(path, ": no data file in this folder (", list.empty() ? "it is empty" : list, ")"),
                str("known: ", kFileEndings, "; other folders: ", (p / "**" / "*.jsonl").string()));
  }
  if (!has_pattern(path)) {
    throw Error(ErrorCode::data, str(path, ": no such file or folder"), nearest(p));
  }
  for (const auto& file : Pattern(p).found) out.emplace_back(file);
  if (out.empty()) throw Error(ErrorCode::data, str(path, ": no file matches this pattern"), nearest(p));
  return out;
}

}  // namespace bantam
